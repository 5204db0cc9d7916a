#include "autograd/node.h"

#include <atomic>

#include "autograd/autograd.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

std::atomic<uint64_t> next_number{1};

// Receives the gradient of one leaf. It holds the leaf's slot, not the leaf, so a graph does not
// keep tensors alive in a cycle.
class LeafSink final : public Node {
 public:
  explicit LeafSink(std::weak_ptr<GradMeta> leaf) : Node("leaf", {}), leaf_(std::move(leaf)) {}

  std::vector<Tensor> backward(std::span<const Tensor> grad_outputs) override {
    const auto meta = leaf_.lock();
    if (!meta || !grad_outputs[0].defined()) return {};
    if (!meta->grad.defined()) {
      // Kept as it is when nobody else can write to it, copied otherwise.
      const Tensor& incoming = grad_outputs[0];
      meta->grad = incoming.unique() && incoming.contiguous() ? incoming : clone(incoming);
    } else {
      accumulate_into(meta->grad, grad_outputs[0]);
    }
    return {};
  }

 private:
  std::weak_ptr<GradMeta> leaf_;
};

}  // namespace

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (!tensor.defined()) return;
  tensor_ = tensor.detach();
  version_ = tensor.storage()->version();
}

const Tensor& SavedTensor::get(const char* node) const {
  SLUICE_CHECK(
      !tensor_.defined() || tensor_.storage()->version() == version_,
      GradError,
      "backward of {}: a saved tensor ({}) must be unchanged since the forward pass, got version "
      "{} instead of {}: an in-place operation wrote to it",
      node,
      describe(tensor_),
      tensor_.storage()->version(),
      version_);
  return tensor_;
}

size_t SavedTensor::bytes() const {
  return tensor_.defined() ? size_t(tensor_.numel()) * size_of(tensor_.dtype()) : 0;
}

Node::Node(const char* name, std::span<const Tensor> inputs)
    : name_(name), number_(next_number.fetch_add(1, std::memory_order_relaxed)) {
  edges_.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    Edge edge;
    if (input.defined()) {
      const auto& meta = input.grad_meta();
      if (meta && meta->node) {
        edge = {meta->node, meta->index};
      } else if (meta && meta->requires_grad) {
        meta->node = std::make_shared<LeafSink>(meta);
        edge = {meta->node, 0};
      }
    }
    edges_.push_back(std::move(edge));
  }
}

// Letting the edges' shared_ptrs go would recurse once per node of a chain. Instead the outermost
// destructor collects nodes that lose their last owner in a list and empties it in a loop.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* pending = nullptr;
  if (pending != nullptr) {
    for (Edge& edge : edges_) {
      if (edge.node) pending->push_back(std::move(edge.node));
    }
    return;
  }
  std::vector<std::shared_ptr<Node>> queue;
  pending = &queue;
  for (Edge& edge : edges_) {
    if (edge.node) queue.push_back(std::move(edge.node));
  }
  while (!queue.empty()) {
    const std::shared_ptr<Node> node = std::move(queue.back());
    queue.pop_back();
  }
  pending = nullptr;
}

size_t Node::saved_bytes() const {
  size_t bytes = 0;
  for (const SavedTensor& saved : saved_) bytes += saved.bytes();
  return bytes;
}

void Node::release() {
  released_ = true;
  saved_.clear();
  on_release();
}

void Node::save(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) saved_.emplace_back(tensor);
}

const Tensor& Node::saved(int i) const { return saved_[static_cast<size_t>(i)].get(name_); }

void set_history(std::shared_ptr<Node> node, std::span<const Tensor> outputs) {
  node->outputs_ = static_cast<int>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    auto meta = std::make_shared<GradMeta>();
    meta->requires_grad = true;
    meta->node = node;
    meta->index = static_cast<int>(i);
    Tensor(outputs[i]).set_grad_meta(std::move(meta));
  }
}

bool should_record(std::span<const Tensor> inputs) {
  if (!recording()) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && requires_grad(input)) return true;
  }
  return false;
}

bool should_record(std::initializer_list<Tensor> inputs) {
  return should_record(std::span<const Tensor>(inputs.begin(), inputs.size()));
}

}  // namespace sluice::autograd
