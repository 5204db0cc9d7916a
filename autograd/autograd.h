// What users of gradients call: leaves, backward, no-grad mode, memory report.
#pragma once

#include <string>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

/// Marks a leaf whose gradient is wanted. Returns the same tensor.
/// Throws DTypeError unless floating, GradError when the tensor is a recorded result.
Tensor set_requires_grad(const Tensor& tensor, bool requires_grad = true);

/// True for leaves marked so and for results recorded from them.
bool requires_grad(const Tensor& tensor);

/// The accumulated gradient of a leaf; undefined before the first backward.
Tensor grad(const Tensor& leaf);
/// Replaces it; an undefined tensor clears it. Throws ShapeError, DTypeError.
void set_grad(const Tensor& leaf, const Tensor& grad);

/// Adds d(root)/d(leaf) to the gradient of every leaf that root depends on. `root` must have one
/// element unless `grad_root` (its shape and dtype) is given. The graph's saved tensors are freed
/// unless options.retain_graph. No recursion: depth is bounded by memory only.
/// Throws GradError (root not recorded, graph already freed, saved data written since), ShapeError.
struct BackwardOptions {
  bool retain_graph = false;
};
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
