// Continuing a text byte by byte.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/meta_attention.h"

namespace sluice {

struct GenerateOptions {
  int64_t bytes = 200;
  double temperature = 1.0;  ///< 0: always the likeliest byte
  int64_t top_k = 0;         ///< only the k likeliest bytes; 0: all
  uint64_t seed = 1;
  /// Called with each new byte; false ends the text.
  std::function<bool(char byte)> on_byte;
};

/// The prompt's continuation in hard mode with cached keys and values, at most as long as the
/// context allows. An empty prompt begins with a line break.
/// Throws ArgumentError (a prompt that fills the context, a negative temperature or top_k, a model
/// whose logits are not finite).
std::string generate(
    const MetaAttentionLM& model, std::string_view prompt, const GenerateOptions& options);

/// Draws an index from softmax(logits / temperature) over the top_k largest (0: all), `uniform`
/// in [0, 1) being the random number; the lowest index of the largest logit when temperature is 0.
/// Throws ArgumentError (a logit that is NaN, or a largest one that is infinite: there is no
/// softmax).
int32_t sample_logits(
    std::span<const float> logits, double temperature, int64_t top_k, double uniform);

}  // namespace sluice
