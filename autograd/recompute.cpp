// The second run is recorded with the real inputs, so its nodes link to the graph around the block.
// They carry the largest numbers of all and therefore run next, in their own order: exactly where
// the block's nodes would have run. A nested backward pass would add the block's contributions to a
// gradient in one sum and round differently from the plain graph.
#include "autograd/recompute.h"

#include "autograd/autograd.h"
#include "autograd/node.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

// The saved input, linked to where `edge` leads.
Tensor linked(const Tensor& saved, const Edge& edge) {
  if (!edge) return saved;
  Tensor tensor = saved.detach();
  if (edge.leaf) {
    tensor.set_grad_meta(edge.leaf);
  } else {
    auto meta = std::make_shared<GradMeta>();
    meta->requires_grad = true;
    meta->node = edge.node;
    meta->index = edge.index;
    tensor.set_grad_meta(std::move(meta));
  }
  return tensor;
}

class Recompute final : public Node {
 public:
  Recompute(
      Block block,
      std::span<const Tensor> inputs,
      std::span<const Tensor> parameters,
      std::span<const Tensor> outputs)
      : Node("recompute", inputs),
        block_(std::move(block)),
        count_(static_cast<int>(inputs.size())),
        parameters_(parameters.begin(), parameters.end()) {
    save(inputs);
    for (const Tensor& output : outputs) shapes_.push_back(output.shape());
  }

  std::vector<Root> expand(std::span<const Tensor> grad_outputs) override {
    for (const SavedTensor& parameter : parameters_) parameter.get(name());
    std::vector<Tensor> inputs;
    for (int i = 0; i < count_; ++i) {
      inputs.push_back(linked(saved(i), edges()[static_cast<size_t>(i)]));
    }
    const RecordingScope record_again(true);
    std::vector<Tensor> outputs = block_(inputs);
    SLUICE_CHECK(
        outputs.size() == shapes_.size(),
        GradError,
        "recompute: block must return {} tensors as in its first run, got {}",
        shapes_.size(),
        outputs.size());
    std::vector<Root> roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
      SLUICE_CHECK(
          outputs[i].shape() == shapes_[i],
          GradError,
          "recompute: output {} must have shape {} as in the first run, got {}",
          i,
          to_string(shapes_[i]),
          to_string(outputs[i].shape()));
      roots.push_back({std::move(outputs[i]), grad_outputs[i]});
    }
    return roots;
  }

  // Gradients reach the inputs through the operations of the second run.
  std::vector<Tensor> backward(std::span<const Tensor>) override { return {}; }

 private:
  void on_release() override {
    block_ = nullptr;
    parameters_ = {};
  }

  Block block_;
  int count_;
  // Only their versions matter: the block owns them anyway, so they are no part of saved_bytes.
  std::vector<SavedTensor> parameters_;
  std::vector<Shape> shapes_;
};

}  // namespace

std::vector<Tensor> recompute(
    Block block, std::span<const Tensor> inputs, std::span<const Tensor> parameters) {
  if (!should_record(inputs) && !should_record(parameters)) return block(inputs);
  std::vector<Tensor> outputs;
  {
    const NoGrad no_grad;
    outputs = block(inputs);
  }
  std::vector<Tensor> recorded(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    // A block may return an input, a captured tensor or one result twice: each output gets a handle
    // of its own.
    outputs[i] = outputs[i].detach();
    if (is_floating(outputs[i].dtype())) recorded[i] = outputs[i];
  }
  set_history(std::make_shared<Recompute>(std::move(block), inputs, parameters, outputs), recorded);
  return outputs;
}

Tensor recompute(
    std::function<Tensor(const Tensor& input)> block,
    const Tensor& input,
    std::span<const Tensor> parameters) {
  return recompute(
      [block = std::move(block)](std::span<const Tensor> inputs) {
        return std::vector<Tensor>{block(inputs[0])};
      },
      {&input, 1},
      parameters)[0];
}

}  // namespace sluice::autograd
