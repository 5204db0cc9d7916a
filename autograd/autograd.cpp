#include "autograd/autograd.h"

#include <map>

#include "autograd/node.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

thread_local bool recording_on = true;

bool is_result(const Tensor& tensor) {
  const auto& meta = tensor.grad_meta();
  // A leaf's node is its sink, which has no edges and keeps nothing; a result's node has edges.
  return meta && meta->node && !meta->node->edges().empty();
}

// Gradients that have arrived at one node, by output.
struct Pending {
  std::shared_ptr<Node> node;
  std::vector<Tensor> grads;
};

void add_gradient(Tensor& slot, Tensor&& gradient) {
  if (!slot.defined()) {
    slot = std::move(gradient);
  } else if (slot.unique() && slot.contiguous()) {
    accumulate_into(slot, gradient);
  } else {
    // Shared with another slot or with the caller: add into a copy.
    slot = clone(slot);
    accumulate_into(slot, gradient);
  }
}

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
  if (!requires_grad) same.grad_meta()->node = nullptr;
  return same;
}

bool requires_grad(const Tensor& tensor) {
  const auto& meta = tensor.grad_meta();
  return meta && meta->requires_grad;
}

Tensor grad(const Tensor& leaf) { return leaf.grad_meta() ? leaf.grad_meta()->grad : Tensor(); }

void set_grad(const Tensor& leaf, const Tensor& grad) {
  SLUICE_CHECK(
      requires_grad(leaf), GradError, "set_grad: tensor must be a leaf that requires a gradient");
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
  }
  leaf.grad_meta()->grad = grad;
}

void backward(const Tensor& root, const Tensor& grad_root, BackwardOptions options) {
  SLUICE_CHECK(
      root.defined() && root.grad_meta() && root.grad_meta()->node,
      GradError,
      "backward: root must be a recorded result, got {}",
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
      seed.shape() == root.shape() && seed.dtype() == root.dtype(),
      ShapeError,
      "backward: gradient must be {}, got {}",
      describe(root),
      describe(seed));

  const NoGrad no_grad;
  // Keyed by node number: the largest is always safe to visit next.
  std::map<uint64_t, Pending> waiting;
  auto deliver = [&](const Edge& edge, Tensor&& gradient) {
    Pending& pending = waiting[edge.node->number()];
    if (!pending.node) {
      pending.node = edge.node;
      pending.grads.resize(size_t(std::max(1, edge.node->outputs())));
    }
    add_gradient(pending.grads[size_t(edge.index)], std::move(gradient));
  };
  deliver({root.grad_meta()->node, root.grad_meta()->index}, std::move(seed));

  while (!waiting.empty()) {
    const auto newest = std::prev(waiting.end());
    const Pending pending = std::move(newest->second);
    waiting.erase(newest);
    Node& node = *pending.node;
    const bool sink = node.edges().empty();
    SLUICE_CHECK(
        sink || !node.released(),
        GradError,
        "backward of {}: its saved tensors must still be there, but an earlier backward freed them "
        "(retain_graph keeps them)",
        node.name());
    std::vector<Tensor> grads = node.backward(pending.grads);
    for (size_t i = 0; i < grads.size() && i < node.edges().size(); ++i) {
      const Edge& edge = node.edges()[i];
      if (edge.node && grads[i].defined()) deliver(edge, std::move(grads[i]));
    }
    if (!options.retain_graph && !sink) node.release();
  }
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
