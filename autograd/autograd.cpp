// The backward pass and the state of a thread: whether it records.
#include "autograd/autograd.h"

#include <iterator>
#include <map>
#include <utility>

#include "autograd/node.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

thread_local bool recording_on = true;

bool is_result(const Tensor& tensor) { return tensor.grad_meta() && tensor.grad_meta()->node; }

// True when the memory is dense, exactly as large as the tensor, and nobody else's: then it may be
// added into and kept.
bool owned(const Tensor& tensor) {
  const size_t bytes = size_t(tensor.numel()) * size_of(tensor.dtype());
  return tensor.unique() && tensor.contiguous() && tensor.storage()->bytes() == bytes;
}

// Sums of two floats do not depend on their order, so whichever side is owned takes the other in.
void add_gradient(Tensor& slot, Tensor&& gradient) {
  if (!slot.defined()) {
    slot = std::move(gradient);
    return;
  }
  if (!owned(slot)) {
    if (owned(gradient))
      std::swap(slot, gradient);
    else
      slot = clone(slot);
  }
  accumulate_into(slot, gradient);
}

// The gradient of a leaf is added to in place: optimisers hold on to the tensor.
void add_to_leaf(GradMeta& leaf, Tensor&& gradient) {
  if (!leaf.requires_grad) return;
  if (leaf.grad.defined())
    accumulate_into(leaf.grad, gradient);
  else
    leaf.grad = owned(gradient) ? std::move(gradient) : clone(gradient);
}

// Gradients that have arrived at one node, by output.
struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grads;
};

// One backward pass. Gradients of leaves are added at once, those of results wait for their node.
class Pass {
 public:
  explicit Pass(BackwardOptions options) : options_(options) {}

  void deliver(const Edge& edge, Tensor&& gradient) {
    if (edge.leaf) add_to_leaf(*edge.leaf, std::move(gradient));
    if (!edge.node) return;
    Pending& pending = waiting_[edge.node->number()];
    if (!pending.node) {
      pending.node = edge.node;
      pending.grads.resize(size_t(edge.node->outputs()));
    }
    add_gradient(pending.grads[size_t(edge.index)], std::move(gradient));
  }

  void finish() {
    while (!waiting_.empty()) {
      // Consumers have larger numbers than what they consume, so all of them have been visited.
      const auto newest = std::prev(waiting_.end());
      Pending pending = std::move(newest->second);
      waiting_.erase(newest);
      visit(*pending.node, std::move(pending.grads));
    }
  }

 private:
  void visit(Node& node, std::vector<Tensor>&& arrived) {
    SLUICE_CHECK(
        !node.released(),
        GradError,
        "backward of {}: its saved tensors must still be there, but an earlier backward freed them "
        "(retain_graph keeps them)",
        node.name());
    std::vector<Node::Root> roots = node.expand(arrived);
    std::vector<Tensor> grads = node.backward(arrived);
    SLUICE_CHECK(
        grads.empty() || grads.size() == node.edges().size(),
        GradError,
        "backward of {}: must return {} gradients, one for each input, or none, got {}",
        node.name(),
        node.edges().size(),
        grads.size());
    // Freed before anything is passed on: a gradient that the node handed through then has one
    // owner again, and the peak of memory is lower by what the node had saved.
    arrived.clear();
    if (!options_.retain_graph) node.release();
    for (Node::Root& root : roots) {
      if (!root.gradient.defined()) continue;
      const Edge edge = edge_to(root.result);
      root.result = {};
      deliver(edge, std::move(root.gradient));
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      const Edge& edge = node.edges()[i];
      if (!edge || !grads[i].defined()) continue;
      SLUICE_CHECK(
          grads[i].shape() == edge.shape && grads[i].dtype() == edge.dtype,
          GradError,
          "backward of {}: gradient of input {} must be {} {}, got {}",
          node.name(),
          i,
          name_of(edge.dtype),
          to_string(edge.shape),
          describe(grads[i]));
      deliver(edge, std::move(grads[i]));
    }
  }

  BackwardOptions options_;
  // Keyed by node number: the largest is always safe to visit next.
  std::map<uint64_t, Pending> waiting_;
};

}  // namespace

Tensor set_requires_grad(const Tensor& tensor, bool requires_grad) {
  SLUICE_CHECK(
      is_floating(tensor.dtype()),
      DTypeError,
      "set_requires_grad: dtype must be floating, got {}",
      name_of(tensor.dtype()));
  SLUICE_CHECK(
      !is_result(tensor),
      GradError,
      "set_requires_grad: tensor must be a leaf, got the result of {}",
      tensor.grad_meta()->node->name());
  Tensor same = tensor;
  if (!tensor.grad_meta()) same.set_grad_meta(std::make_shared<GradMeta>());
  same.grad_meta()->requires_grad = requires_grad;
  return same;
}

bool requires_grad(const Tensor& tensor) {
  const auto& meta = tensor.grad_meta();
  return meta && meta->requires_grad;
}

Tensor grad(const Tensor& leaf) { return leaf.grad_meta() ? leaf.grad_meta()->grad : Tensor(); }

void set_grad(const Tensor& leaf, const Tensor& grad) {
  SLUICE_CHECK(
      requires_grad(leaf) && !is_result(leaf),
      GradError,
      "set_grad: tensor must be a leaf that requires a gradient, got {}",
      is_result(leaf) ? "a recorded result" : "one that does not");
  if (grad.defined()) {
    SLUICE_CHECK(
        grad.shape() == leaf.shape(),
        ShapeError,
        "set_grad: shape must be {}, got {}",
        to_string(leaf.shape()),
        to_string(grad.shape()));
    SLUICE_CHECK(
        grad.dtype() == leaf.dtype(),
        DTypeError,
        "set_grad: dtype must be {}, got {}",
        name_of(leaf.dtype()),
        name_of(grad.dtype()));
    SLUICE_CHECK(
        grad.device() == leaf.device(),
        DeviceError,
        "set_grad: gradient must be on {}, got {}",
        to_string(leaf.device()),
        to_string(grad.device()));
    SLUICE_CHECK(
        grad.contiguous(),
        ArgumentError,
        "set_grad: gradient must be contiguous, got {}",
        describe(grad));
  }
  leaf.grad_meta()->grad = grad;
}

void backward(const Tensor& root, const Tensor& grad_root, BackwardOptions options) {
  SLUICE_CHECK(
      root.defined() && requires_grad(root),
      GradError,
      "backward: root must depend on a tensor that requires a gradient, got {}",
      describe(root));
  Tensor seed = grad_root;
  if (!seed.defined()) {
    SLUICE_CHECK(
        root.numel() == 1,
        ShapeError,
        "backward: root must have one element when no gradient is given, got {}",
        to_string(root.shape()));
    seed = full(root.shape(), 1.0, {root.dtype(), root.device()});
  }
  SLUICE_CHECK(
      seed.shape() == root.shape(),
      ShapeError,
      "backward: gradient must have shape {}, got {}",
      to_string(root.shape()),
      to_string(seed.shape()));
  SLUICE_CHECK(
      seed.dtype() == root.dtype(),
      DTypeError,
      "backward: gradient must be {}, got {}",
      name_of(root.dtype()),
      name_of(seed.dtype()));
  SLUICE_CHECK(
      seed.device() == root.device(),
      DeviceError,
      "backward: gradient must be on {}, got {}",
      to_string(root.device()),
      to_string(seed.device()));
  const NoGrad no_grad;
  Pass pass(options);
  pass.deliver(edge_to(root), std::move(seed));
  pass.finish();
}

bool recording() { return recording_on; }

RecordingScope::RecordingScope(bool on) : outer_(recording_on) { recording_on = on; }
RecordingScope::~RecordingScope() { recording_on = outer_; }

std::vector<NodeReport> graph_report(const Tensor& root) {
  std::vector<NodeReport> report;
  if (!root.defined() || !root.grad_meta() || !root.grad_meta()->node) return report;
  std::map<uint64_t, const Node*> waiting;
  waiting[root.grad_meta()->node->number()] = root.grad_meta()->node.get();
  while (!waiting.empty()) {
    const auto newest = std::prev(waiting.end());
    const Node* node = newest->second;
    waiting.erase(newest);
    report.push_back({node->name(), node->number(), node->saved_bytes()});
    for (const Edge& edge : node->edges()) {
      if (edge.node) waiting[edge.node->number()] = edge.node.get();
    }
  }
  return report;
}

}  // namespace sluice::autograd
