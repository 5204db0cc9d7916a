// The recorded graph: one Node per operation, edges to where the gradients of its inputs go, and
// the slot through which a Tensor knows its place in the graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

class Node;
struct GradMeta;

/// Data kept for the backward pass: the memory without its graph history, and the version it had.
/// Reading it after an in-place write is a GradError, never silently wrong gradients.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);

  bool defined() const { return tensor_.defined(); }
  /// Throws GradError when the memory was written since, naming `node`.
  const Tensor& get(const char* node) const;
  /// Bytes that its view covers; no more than its storage has when the view repeats elements.
  size_t bytes() const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

/// Where the gradient of one input goes: to output `index` of `node`, into the slot of `leaf`, or
/// nowhere when both are null. `shape` and `dtype` are those of the input, hence of its gradient.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<GradMeta> leaf;
  int index = 0;
  Shape shape;
  DType dtype = DType::f32;

  explicit operator bool() const { return node != nullptr || leaf != nullptr; }
};

/// The edge to `tensor`: nowhere when it is undefined or takes no part in a graph.
Edge edge_to(const Tensor& tensor);

/// One recorded operation. Derive, save what backward needs, compute gradients:
///
///   struct Mul final : autograd::Node {
///     Mul(const Tensor& a, const Tensor& b) : Node("mul", {a, b}) { save({a, b}); }
///     std::vector<Tensor> backward(std::span<const Tensor> grads) override {
///       return {needs(0) ? mul(grads[0], saved(1)) : Tensor(), ...};
///     }
///   };
///
/// Nodes are numbered as they are made; visiting by falling number is a reverse topological order.
/// Destruction does not recurse, whatever the depth of the graph.
/// Thread-safety: none; a graph belongs to the thread that recorded it.
class Node {
 public:
  /// Collects the edges of `inputs` (undefined tensors are allowed and get no edge). `name` must
  /// outlive the node.
  Node(const char* name, std::span<const Tensor> inputs);
  Node(const char* name, std::initializer_list<Tensor> inputs)
      : Node(name, std::span<const Tensor>(inputs.begin(), inputs.size())) {}
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Gradients of the inputs, in their order, from those of the outputs. A grad_output is undefined
  /// when nothing depended on that output; a result may be undefined (no gradient, or a zero one),
  /// else it has the input's shape and dtype; no results at all are no gradients. Runs in no-grad
  /// mode.
  virtual std::vector<Tensor> backward(std::span<const Tensor> grad_outputs) = 0;

  /// A recorded tensor and the gradient that it receives.
  struct Root {
    Tensor result;
    Tensor gradient;
  };
  /// For a node that stands for a graph made only now: the roots of that graph. The backward pass
  /// goes on through them, after which it treats the results of `backward` as usual. No other node
  /// overrides this. Runs in no-grad mode.
  virtual std::vector<Root> expand(std::span<const Tensor> grad_outputs);

  const char* name() const { return name_; }
  uint64_t number() const { return number_; }
  int outputs() const { return outputs_; }
  const std::vector<Edge>& edges() const { return edges_; }
  /// Memory kept for backward by save(); shared storage is counted by each node.
  size_t saved_bytes() const;
  bool released() const { return released_; }
  /// Frees saved tensors; a backward through this node is then a GradError.
  void release();

 protected:
  /// True when input i takes part in the graph, so its gradient is wanted.
  bool needs(int i) const { return bool(edges_[static_cast<size_t>(i)]); }
  void save(std::span<const Tensor> tensors);
  void save(std::initializer_list<Tensor> tensors) {
    save(std::span<const Tensor>(tensors.begin(), tensors.size()));
  }
  /// The i-th saved tensor; undefined if it was saved undefined. Throws GradError when stale.
  const Tensor& saved(int i) const;
  /// Called by release(): frees what the node keeps besides its saved tensors.
  virtual void on_release() {}

 private:
  friend void set_history(std::shared_ptr<Node> node, std::span<const Tensor> outputs);

  const char* name_;
  uint64_t number_;
  int outputs_ = 1;
  bool released_ = false;
  std::vector<Edge> edges_;
  std::vector<SavedTensor> saved_;
};

/// What hangs on a Tensor: for a leaf its gradient, for a result the node that made it. A graph
/// holds the slots of its leaves, not the leaves, so it keeps no tensor alive in a cycle.
struct GradMeta {
  GradMeta() = default;
  ~GradMeta();
  GradMeta(const GradMeta&) = delete;
  GradMeta& operator=(const GradMeta&) = delete;

  bool requires_grad = false;
  Tensor grad;                 // leaves only
  std::shared_ptr<Node> node;  // results only
  int index = 0;               // which output of that node
};

/// Makes `outputs` the outputs of `node`, in order; undefined ones are skipped. Throws GradError
/// when one takes part in a graph already: an operation must not return its input as its result.
void set_history(std::shared_ptr<Node> node, std::span<const Tensor> outputs);

/// True when recording is on and one of `inputs` takes part in a graph.
bool should_record(std::initializer_list<Tensor> inputs);
bool should_record(std::span<const Tensor> inputs);

/// Makes a NodeType from `args` and gives it `output`. Call only when should_record(...).
template <class NodeType, class... Args>
void record(const Tensor& output, Args&&... args) {
  set_history(std::make_shared<NodeType>(std::forward<Args>(args)...), {&output, 1});
}

}  // namespace sluice::autograd
