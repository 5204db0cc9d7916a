// What users of gradients call: leaves, backward, no-grad mode, memory report.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

/// Marks a leaf whose gradient is wanted. Returns the same tensor. Turned off, the leaf's gradient
/// stays as it is and later backward passes, those of graphs recorded before included, skip it.
/// Throws DTypeError unless floating, GradError when the tensor is a recorded result.
Tensor set_requires_grad(const Tensor& tensor, bool requires_grad = true);

/// True for leaves marked so and for results recorded from them.
bool requires_grad(const Tensor& tensor);

/// The accumulated gradient of a leaf; undefined before the first backward.
Tensor grad(const Tensor& leaf);
/// Replaces it; an undefined tensor clears it. The tensor itself is kept and later added to in
/// place. Throws GradError (not a leaf that requires a gradient), ShapeError, DTypeError,
/// DeviceError, ArgumentError (not contiguous).
void set_grad(const Tensor& leaf, const Tensor& grad);

struct BackwardOptions {
  bool retain_graph = false;  ///< keep saved tensors, so that backward may run again
};

/// Adds d(root)/d(leaf) to the gradient of every leaf that root depends on.
///
/// `root` must have one element unless `grad_root` (its shape and dtype) is given. A node's saved
/// tensors and incoming gradients are freed as soon as it has run. Nodes run in falling order of
/// their numbers, each gradient is summed in the order in which its parts arise, and no recursion
/// takes place: depth is bounded by memory only. After an exception some leaves may have received
/// their gradients and others not.
///
/// Throws  GradError (root needs no gradient, graph already freed, saved data written since, a node
///         returned too few or too many gradients or one of the wrong shape or dtype), ShapeError,
///         DTypeError, DeviceError
void backward(const Tensor& root, const Tensor& grad_root = {}, BackwardOptions options = {});

/// True when operations of this thread are recorded.
bool recording();

/// Turns recording off (or on) until the end of the scope, for this thread.
class RecordingScope {
 public:
  explicit RecordingScope(bool on);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool outer_;
};
struct NoGrad : RecordingScope {
  NoGrad() : RecordingScope(false) {}
};

/// One row per node of the graph behind `root`, newest first.
struct NodeReport {
  std::string name;
  uint64_t number;
  size_t saved_bytes;  ///< memory kept for backward, shared storage counted by each node
};
std::vector<NodeReport> graph_report(const Tensor& root);

}  // namespace sluice::autograd
