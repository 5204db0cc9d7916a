// What a demonstration found, as a table and a sentence.
#pragma once

#include <string>
#include <vector>

#include "models/evaluate.h"
#include "tools/demo_plan.h"

namespace sluice::tools {

/// One row of the table: an evaluation per seed. Its attention_ms and controller_ms are medians of
/// forward passes that took turns with those of the other rows.
struct DemoRow {
  PlannedRow plan;
  std::vector<Evaluation> seeds;
};

struct DemoResult {
  std::string title;
  std::vector<DemoRow> rows;
  std::vector<std::string> facts;  ///< "key: value": machine, text, sizes
  std::string record;              ///< a held-out record marked by expert
};

/// Mean and half width of the 95 % confidence interval (Student's t); no width for one value.
struct Estimate {
  double mean = 0;
  double half_width = 0;
};
Estimate estimate(const std::vector<double>& values);
/// "0.612" or "0.612 ± 0.004".
std::string to_string(const Estimate& value, int digits);

/// Whether routing beat the static control at equal measured time, in one sentence of plain words.
/// It did when its loss is lower and its attention, controller included, takes no more time than
/// the control's plus 2 % (what repeated timings differ by); with several seeds the loss difference
/// must also exceed its interval.
std::string verdict(const DemoRow& routed, const DemoRow& control);

/// The whole report; its first line is the verdict.
std::string to_markdown(const DemoResult& result);
nlohmann::json to_json(const DemoResult& result);

}  // namespace sluice::tools
