// Making, linking and destroying nodes; the order of visiting them is in autograd.cpp.
#include "autograd/node.h"

#include <algorithm>
#include <atomic>

#include "autograd/autograd.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

std::atomic<uint64_t> next_number{1};

// Drops one owner of `node`. Left to the shared_ptrs, the last owner of a chain would recurse once
// per node: through edges, and through tensors that a derived node holds. Instead the outermost
// call keeps a list of nodes to drop and empties it in a loop.
void drop(std::shared_ptr<Node>&& node) {
  thread_local std::vector<std::shared_ptr<Node>>* dropping = nullptr;
  if (node.use_count() != 1) {
    node.reset();
    return;
  }
  if (dropping != nullptr) {
    dropping->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<Node>> list;
  dropping = &list;
  list.push_back(std::move(node));
  while (!list.empty()) {
    const std::shared_ptr<Node> last = std::move(list.back());
    list.pop_back();
  }
  dropping = nullptr;
}

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
  if (!tensor_.defined()) return 0;
  const size_t viewed = size_t(tensor_.numel()) * size_of(tensor_.dtype());
  return std::min(viewed, tensor_.storage()->bytes());
}

Edge edge_to(const Tensor& tensor) {
  Edge edge;
  if (!tensor.defined()) return edge;
  edge.shape = tensor.shape();
  edge.dtype = tensor.dtype();
  const auto& meta = tensor.grad_meta();
  if (meta && meta->node) {
    edge.node = meta->node;
    edge.index = meta->index;
  } else if (meta && meta->requires_grad) {
    edge.leaf = meta;
  }
  return edge;
}

Node::Node(const char* name, std::span<const Tensor> inputs)
    : name_(name), number_(next_number.fetch_add(1, std::memory_order_relaxed)) {
  edges_.reserve(inputs.size());
  for (const Tensor& input : inputs) edges_.push_back(edge_to(input));
}

Node::~Node() {
  for (Edge& edge : edges_) drop(std::move(edge.node));
}

GradMeta::~GradMeta() { drop(std::move(node)); }

std::vector<Node::Root> Node::expand(std::span<const Tensor>) { return {}; }

size_t Node::saved_bytes() const {
  size_t bytes = 0;
  for (const SavedTensor& saved : saved_) bytes += saved.bytes();
  return bytes;
}

void Node::release() {
  released_ = true;
  saved_ = {};
  on_release();
}

void Node::save(std::span<const Tensor> tensors) {
  saved_.reserve(saved_.size() + tensors.size());
  for (const Tensor& tensor : tensors) saved_.emplace_back(tensor);
}

const Tensor& Node::saved(int i) const { return saved_[static_cast<size_t>(i)].get(name_); }

void set_history(std::shared_ptr<Node> node, std::span<const Tensor> outputs) {
  node->outputs_ = static_cast<int>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    SLUICE_CHECK(
        !edge_to(outputs[i]),
        GradError,
        "{}: output {} must be a fresh tensor, got one that takes part in a graph",
        node->name(),
        i);
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
