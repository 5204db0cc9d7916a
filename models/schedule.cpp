// See schedule.h.
#include "models/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/errors.h"

namespace sluice {

double learning_rate(const ScheduleOptions& options, int64_t step) {
  const auto& [decay, peak, steps, warmup, final_fraction, decay_fraction] = options;
  SLUICE_CHECK(
      step >= 0 && step < steps,
      ArgumentError,
      "learning_rate: step must be in [0, {}), got {}",
      steps,
      step);
  SLUICE_CHECK(
      warmup >= 0 && warmup < steps,
      ArgumentError,
      "learning_rate: warmup must be in [0, steps = {}), got {}",
      steps,
      warmup);
  SLUICE_CHECK(
      final_fraction >= 0 && final_fraction <= 1 && decay_fraction >= 0 && decay_fraction <= 1,
      ArgumentError,
      "learning_rate: final_fraction and decay_fraction must be in [0, 1], got {} and {}",
      final_fraction,
      decay_fraction);

  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::constant) return peak;
  int64_t begin = warmup;
  if (decay == Decay::wsd) {
    const int64_t falling = std::llround(decay_fraction * static_cast<double>(steps));
    begin = std::max(warmup, steps - 1 - falling);
  }
  const int64_t last = steps - 1;
  if (step <= begin || last <= begin) return peak;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(last - begin);
  const double left =
      decay == Decay::cosine ? (1 + std::cos(std::numbers::pi * progress)) / 2 : 1 - progress;
  return peak * (final_fraction + (1 - final_fraction) * left);
}

}  // namespace sluice
