// See generate.h.
#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "engine/philox.h"
#include "models/decode.h"

namespace sluice {
namespace {

// Below 2^32, where the random streams of layers begin.
constexpr uint64_t kGenerateStream = 0x67656e65;  // "gene"

}  // namespace

int32_t sample_logits(
    std::span<const float> logits, double temperature, int64_t top_k, double uniform) {
  float largest = -std::numeric_limits<float>::infinity();
  // A NaN stays: no number compares as larger.
  for (const float logit : logits) largest = std::isnan(logit) ? logit : std::max(largest, logit);
  SLUICE_CHECK(
      std::isfinite(largest),
      ArgumentError,
      "sample_logits: the largest logit must be finite, got {}; a model whose parameters are not?",
      largest);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[size_t(a)] > logits[size_t(b)];
  });
  if (temperature == 0) return order.front();
  if (top_k > 0 && top_k < static_cast<int64_t>(order.size())) order.resize(size_t(top_k));
  std::vector<double> weights;
  for (const int32_t id : order) {
    weights.push_back(std::exp((double(logits[size_t(id)]) - double(largest)) / temperature));
  }
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

std::string generate(
    const MetaAttentionLM& model, std::string_view prompt, const GenerateOptions& options) {
  SLUICE_CHECK(
      options.temperature >= 0 && options.top_k >= 0,
      ArgumentError,
      "generate: temperature and top_k must be >= 0, got {} and {}",
      options.temperature,
      options.top_k);
  const int64_t context = model.config().context;
  std::vector<int32_t> tokens;
  for (const char byte : prompt.empty() ? std::string_view("\n") : prompt) {
    tokens.push_back(static_cast<uint8_t>(byte));
  }
  SLUICE_CHECK(
      static_cast<int64_t>(tokens.size()) < context,
      ArgumentError,
      "generate: the prompt must be shorter than the context of {} bytes, got {}",
      context,
      tokens.size());

  const autograd::NoGrad no_grad;
  Decoder decoder(model);
  std::string text;
  while (static_cast<int64_t>(text.size()) < options.bytes) {
    const Tensor logits = to_contiguous(decoder.feed(tokens));
    const auto width = static_cast<size_t>(logits.size(-1));
    const float* last = logits.data<float>() + logits.numel() - int64_t(width);
    const auto word = philox4x32({options.seed, kGenerateStream}, text.size());
    // Ids past 255 of a larger vocabulary are no bytes.
    const int32_t id = sample_logits(
        {last, std::min<size_t>(width, 256)},
        options.temperature,
        options.top_k,
        unit_double(word[0], word[1]));
    text.push_back(static_cast<char>(id));
    const bool wanted = !options.on_byte || options.on_byte(text.back());
    if (!wanted || decoder.position() >= context) break;
    tokens = {id};
  }
  return text;
}

}  // namespace sluice
