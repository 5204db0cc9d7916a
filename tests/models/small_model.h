// A model small enough for tests whose tokens take all three experts, and what to run it on.
#pragma once

#include <string>

#include "autograd/autograd.h"
#include "models/meta_attention.h"

namespace sluice::testing {

inline MetaAttentionConfig small_config() {
  MetaAttentionConfig config;
  config.vocabulary = 31;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.feed_forward = 24;
  config.context = 200;
  config.window = 9;
  config.controller_width = 8;
  return config;
}

// Parameters large enough that attention is far from uniform and routes differ between tokens.
inline void scale_parameters(const Module& model, float factor) {
  for (const NamedTensor& named : model.parameters()) {
    if (named.name.find("norm") != std::string::npos) continue;
    float* data = named.tensor.data<float>();
    for (int64_t i = 0; i < named.tensor.numel(); ++i) data[i] *= factor;
  }
}

inline MetaAttentionLM lively_model(const MetaAttentionConfig& config, uint64_t seed = 3) {
  MetaAttentionLM model(config, seed);
  scale_parameters(model, 25.0f);
  return model;
}

inline Tensor random_tokens(int64_t B, int64_t T, int64_t vocabulary, uint64_t stream) {
  const Tensor draws = rand({B, T}, 11, stream);
  const Tensor tokens = empty({B, T}, {DType::i32, {}});
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data<int32_t>()[i] = int32_t(double(draws.data<float>()[i]) * double(vocabulary));
  }
  return tokens;
}

inline StepOptions in_mode(RouteMode mode) {
  StepOptions options;
  options.mode = mode;
  options.seed = 5;
  return options;
}

inline Tensor logits_of(
    const MetaAttentionLM& model, const Tensor& tokens, const StepOptions& options) {
  const autograd::NoGrad no_grad;
  return model.forward(tokens, {}, options).logits;
}

}  // namespace sluice::testing
