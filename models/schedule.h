// The learning rate of each step.
#pragma once

#include <cstdint>

namespace sluice {

enum class Decay : uint8_t {
  constant,  ///< peak after the warm-up
  cosine,    ///< half a cosine from peak to the final rate
  wsd        ///< warm-up, stable, decay: peak, then linear to the final rate
};

struct ScheduleOptions {
  Decay decay = Decay::cosine;
  double peak = 3e-3;
  int64_t steps = 0;             ///< of the whole run
  int64_t warmup = 0;            ///< steps of linear rise; the first step has peak / warmup
  double final_fraction = 0.05;  ///< rate of the last step, as a part of peak
  double decay_fraction = 0.2;   ///< wsd: part of the steps that decay
};

/// The rate of `step`, 0 <= step < options.steps.
///
///   warm-up: peak * (step + 1) / warmup
///   cosine:  final + (peak - final) * (1 + cos(pi * p)) / 2, p from 0 after the warm-up to 1 at
///            the last step
///   wsd:     peak, then linear to final over the last decay_fraction * steps
///
/// Units   rate per step
/// Throws  ArgumentError (step outside the run, warmup >= steps, a fraction outside [0, 1])
/// Source  Loshchilov, Hutter 2017, arXiv:1608.03983, section 3 without restarts; Hu et al. 2024,
///         arXiv:2404.06395, section 4 (WSD; there the decay is exponential)
double learning_rate(const ScheduleOptions& options, int64_t step);

}  // namespace sluice
