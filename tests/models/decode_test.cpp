#include "models/decode.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

MetaAttentionConfig decoding_config() {
  MetaAttentionConfig config;
  config.vocabulary = 40;
  config.layers = 3;
  config.width = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.feed_forward = 48;
  config.context = 320;
  config.window = 21;
  config.controller_width = 16;
  return config;
}

// Weights large enough that all three experts are chosen and attention is far from uniform.
MetaAttentionLM lively_model(const MetaAttentionConfig& config) {
  MetaAttentionLM model(config, 9);
  for (const NamedTensor& named : model.parameters()) {
    const bool norm = named.name.find("norm") != std::string::npos;
    const bool counts = named.name.find("counts.weight") != std::string::npos;
    float* data = named.tensor.data<float>();
    for (int64_t i = 0; i < named.tensor.numel(); ++i) data[i] *= norm ? 1.0f : counts ? 80 : 12;
  }
  return model;
}

std::vector<int32_t> text(int64_t length, int64_t vocabulary) {
  const auto draws = rand({length}, 21).to_vector<float>();
  std::vector<int32_t> tokens;
  for (const float draw : draws) tokens.push_back(int32_t(double(draw) * double(vocabulary)));
  return tokens;
}

void expect_prefill_equals_decode(const MetaAttentionConfig& config) {
  constexpr int64_t kTokens = 300;
  const MetaAttentionLM model = lively_model(config);
  const std::vector<int32_t> tokens = text(kTokens, config.vocabulary);

  const autograd::NoGrad no_grad;
  StepOptions options;
  options.mode = RouteMode::hard;
  const ModelOutput prefill = model.forward(from_values(tokens, {1, kTokens}), {}, options);

  // A prompt at once, a second piece, then token by token.
  Decoder decoder(model);
  std::vector<float> logits;
  auto feed = [&](int64_t begin, int64_t end) {
    const auto piece = std::span(tokens).subspan(size_t(begin), size_t(end - begin));
    const auto values = decoder.feed(piece).to_vector<float>();
    logits.insert(logits.end(), values.begin(), values.end());
  };
  feed(0, 100);
  feed(100, 130);
  for (int64_t t = 130; t < kTokens; ++t) feed(t, t + 1);
  EXPECT_EQ(decoder.position(), kTokens);

  std::array<int64_t, kExperts> used{};
  bool routes = false;
  for (size_t layer = 0; layer < prefill.layers.size(); ++layer) {
    const Tensor& ids = prefill.layers[layer].decision.ids;
    if (!ids.defined()) continue;
    routes = true;
    const auto expected = ids.to_vector<int32_t>();
    ASSERT_EQ(decoder.routes()[layer], expected) << "layer " << layer;
    for (const int32_t id : expected) ++used[size_t(id)];
  }
  for (size_t expert = 0; expert < kExperts && routes; ++expert) {
    EXPECT_GT(used[expert], 30) << "the case must use expert " << expert;
  }
  const auto reference = prefill.logits.to_vector<float>();
  double scale = 0;
  for (const float value : reference) scale = std::max(scale, std::abs(double(value)));
  for (size_t i = 0; i < reference.size(); ++i) {
    ASSERT_NEAR(logits[i], reference[i], 1e-5 * scale) << "at " << i;
  }
}

TEST(Decoder, PrefillEqualsDecode) { expect_prefill_equals_decode(decoding_config()); }

TEST(Decoder, PrefillEqualsDecodeWithSeparateProjections) {
  MetaAttentionConfig config = decoding_config();
  config.separate_projections = true;
  expect_prefill_equals_decode(config);
}

TEST(Decoder, PrefillEqualsDecodeInControlLayers) {
  MetaAttentionConfig config = decoding_config();
  config.layer_kinds = {"uniform", "window", "full"};
  expect_prefill_equals_decode(config);
  config.layer_kinds = {"prior", "linear", "full"};
  expect_prefill_equals_decode(config);
}

TEST(Decoder, RefusesMoreThanTheContext) {
  const MetaAttentionLM model = lively_model(decoding_config());
  Decoder decoder(model);
  (void)decoder.feed(text(315, 40));
  SLUICE_EXPECT_THROW(decoder.feed(text(6, 40)), ArgumentError, "context is 320");
  EXPECT_EQ(decoder.feed(text(5, 40)).size(0), 5);
}

TEST(Decoder, RefusesRoutesThatTokensDoNotDecide) {
  MetaAttentionConfig config = decoding_config();
  config.layer_kinds = {"random"};
  const MetaAttentionLM model(config, 1);
  SLUICE_EXPECT_THROW(Decoder(model), ArgumentError, "random");
}

}  // namespace
}  // namespace sluice
