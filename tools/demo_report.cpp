// See demo_report.h.
#include "tools/demo_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

namespace sluice::tools {
namespace {

constexpr double kTimeTolerance = 1.02;

/// 97.5 % quantile of Student's t for n - 1 degrees of freedom; beyond the table the normal one.
double student(size_t n) {
  constexpr double kQuantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  return n - 2 < std::size(kQuantiles) ? kQuantiles[n - 2] : 1.96;
}

template <class Get>
Estimate over_seeds(const DemoRow& row, Get&& get) {
  std::vector<double> values;
  for (const Evaluation& evaluation : row.seeds) values.push_back(get(evaluation));
  return estimate(values);
}

Estimate loss_of(const DemoRow& row) {
  return over_seeds(row, [](const Evaluation& e) { return e.loss; });
}

Estimate time_of(const DemoRow& row) {
  return over_seeds(row, [](const Evaluation& e) { return e.measured_ms(); });
}

std::string cell(const Estimate& value, int digits) {
  return std::isnan(value.mean) ? "-" : to_string(value, digits);
}

std::string main_table(const std::vector<DemoRow>& rows) {
  std::string text =
      "| | loss, nats/byte | on `Filename` values | bits/byte | attention ms predicted | measured "
      "| controller ms | attention and controller ms |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const DemoRow& row : rows) {
    const auto column = [&row](double Evaluation::*field, int digits) {
      return cell(over_seeds(row, [field](const Evaluation& e) { return e.*field; }), digits);
    };
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
        row.plan.title,
        column(&Evaluation::loss, 4),
        column(&Evaluation::value_loss, 4),
        column(&Evaluation::bits_per_byte, 4),
        column(&Evaluation::predicted_ms, 2),
        column(&Evaluation::attention_ms, 2),
        column(&Evaluation::controller_ms, 2),
        cell(time_of(row), 2));
  }
  return text;
}

/// "12 / 3 / 85" in percent, means over seeds.
std::string shares_cell(const DemoRow& row, size_t layer) {
  std::string text;
  for (size_t e = 0; e < kExperts; ++e) {
    const Estimate share = over_seeds(
        row, [&](const Evaluation& evaluation) { return 100 * evaluation.layers[layer].all[e]; });
    text += fmt::format("{}{:.0f}", e == 0 ? "" : " / ", share.mean);
  }
  return text;
}

/// "24 : 3", the percentages of full attention on values and elsewhere.
std::string recall_cell(const DemoRow& row, size_t layer) {
  const auto full = [&](const std::array<double, kExperts> LayerShares::*group) {
    return over_seeds(
               row,
               [&](const Evaluation& evaluation) {
                 return 100 * (evaluation.layers[layer].*group)[0];
               })
        .mean;
  };
  return fmt::format("{:.0f} : {:.0f}", full(&LayerShares::value), full(&LayerShares::other));
}

template <class Cell>
std::string layer_table(const std::vector<DemoRow>& rows, Cell&& cell_of) {
  const size_t layers = rows.front().seeds.front().layers.size();
  std::string text = "| |";
  std::string rule = "|---|";
  for (size_t layer = 1; layer <= layers; ++layer) {
    text += fmt::format(" layer {} |", layer);
    rule += "--:|";
  }
  text += "\n" + rule + "\n";
  for (const DemoRow& row : rows) {
    text += fmt::format("| {} |", row.plan.title);
    for (size_t layer = 0; layer < layers; ++layer)
      text += fmt::format(" {} |", cell_of(row, layer));
    text += "\n";
  }
  return text;
}

const DemoRow& row_of(const DemoResult& result, RowRole role) {
  const auto found =
      std::find_if(result.rows.begin(), result.rows.end(), [role](const DemoRow& row) {
        return row.plan.role == role;
      });
  return *found;
}

/// What would have to change for the verdict to change, from the same two rows.
std::string what_would_change_it(const DemoRow& routed, const DemoRow& control) {
  const double loss = loss_of(routed).mean - loss_of(control).mean;
  const double time = time_of(routed).mean - time_of(control).mean;
  std::string text = fmt::format(
      "Routed minus control: {:+.4f} nats/byte, {:+.2f} ms of attention and controller per forward "
      "pass.",
      loss,
      time);
  if (loss > 0) text += fmt::format(" Routing would need {:.4f} nats/byte less.", loss);
  if (time > 0) text += fmt::format(" Routing would need {:.2f} ms less.", time);
  if (loss <= 0 && time <= 0) {
    text += " The control would need to close either gap without opening the other.";
  }
  if (routed.seeds.size() == 1) text += " One seed: a second one may differ by more than the gap.";
  return text;
}

/// Loss of `routed` minus that of `row`, paired: a seed fixes initialisation and data order of
/// both.
Estimate loss_gap(const DemoRow& routed, const DemoRow& row) {
  std::vector<double> gaps;
  for (size_t seed = 0; seed < routed.seeds.size(); ++seed) {
    gaps.push_back(routed.seeds[seed].loss - row.seeds[seed].loss);
  }
  return estimate(gaps);
}

/// Percent of tokens on full attention, mean over layers and seeds.
double full_percent(const DemoRow& row) {
  return over_seeds(
             row,
             [](const Evaluation& evaluation) {
               double sum = 0;
               for (const LayerShares& layer : evaluation.layers) sum += layer.all[0];
               return 100 * sum / static_cast<double>(evaluation.layers.size());
             })
      .mean;
}

double attention_ms(const DemoRow& row) {
  return over_seeds(row, [](const Evaluation& e) { return e.attention_ms; }).mean;
}

/// One line for each all-full or hand-made row, so that share, loss and speed can be read off
/// against the routed row; "" when the plan has none.
std::string comparison(const DemoRow& routed, const std::vector<DemoRow>& rows) {
  std::string text;
  for (const DemoRow& row : rows) {
    if (row.plan.kind == RunKind::other) continue;
    const Estimate gap = loss_gap(routed, row);
    text += fmt::format(
        "- {}: {:.1f} % of tokens on full attention, routed {:.1f} %; routed minus it {}{} "
        "nats/byte; its attention takes {:.2f} times the routed row's, {:.2f} times with the "
        "controller\n",
        row.plan.title,
        full_percent(row),
        full_percent(routed),
        gap.mean < 0 ? "" : "+",
        to_string(gap, 4),
        attention_ms(row) / attention_ms(routed),
        time_of(row).mean / time_of(routed).mean);
  }
  return text;
}

}  // namespace

Estimate estimate(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Estimate result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.half_width = student(values.size()) * std::sqrt(squares / (n - 1) / n);
  return result;
}

std::string to_string(const Estimate& value, int digits) {
  if (value.half_width == 0) return fmt::format("{:.{}f}", value.mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", value.mean, digits, value.half_width, digits);
}

std::string verdict(const DemoRow& routed, const DemoRow& control) {
  const Estimate gap = loss_gap(routed, control);
  const double routed_ms = time_of(routed).mean;
  const double control_ms = time_of(control).mean;
  const bool no_slower = routed_ms <= kTimeTolerance * control_ms;
  const bool no_faster = control_ms <= kTimeTolerance * routed_ms;
  const bool lower = gap.mean < -gap.half_width;
  const bool higher = gap.mean > gap.half_width;
  const char* judgement = nullptr;
  if (lower && no_slower) {
    judgement = "Routing beat the static control at equal measured time";
  } else if (higher && no_faster) {
    judgement = "Routing did not beat the static control at equal measured time";
  } else if (lower) {
    judgement =
        "Routing did not beat the static control at equal measured time: it predicts "
        "better but takes longer";
  } else if (higher) {
    judgement =
        "Routing did not beat the static control at equal measured time: it is faster but "
        "predicts worse";
  } else if (no_faster && no_slower) {
    judgement =
        "Routing and the static control are level: equal loss within the seeds' interval, "
        "equal measured time";
  } else {
    judgement = no_slower
                    ? "Routing reached the static control's loss, within the seeds' interval, in "
                      "less measured time"
                    : "Routing did not beat the static control at equal measured time: equal loss "
                      "within the seeds' interval, but it takes longer";
  }
  return fmt::format(
      "{}: {} against {} nats/byte, {:.2f} against {:.2f} ms of attention and "
      "controller per forward pass.",
      judgement,
      to_string(loss_of(routed), 4),
      to_string(loss_of(control), 4),
      routed_ms,
      control_ms);
}

std::string to_markdown(const DemoResult& result) {
  const DemoRow& routed = row_of(result, RowRole::routed);
  const DemoRow& control = row_of(result, RowRole::control);
  std::string text = verdict(routed, control) + "\n\n# " + result.title + "\n\n";
  text += main_table(result.rows);
  text +=
      "\nHeld-out text, equal seed, data order and tokens. Times are medians of forward passes "
      "over "
      "one batch, all layers, the rows taking turns; \"attention\" is the routing index and the "
      "attention kernels, \"controller\" the choice. Predictions come from the cost model measured "
      "on this machine just before.\n";
  if (routed.seeds.size() > 1) {
    text += fmt::format(
        "\"±\" is the 95 % confidence interval of the mean over {} seeds.\n", routed.seeds.size());
  }
  if (std::any_of(result.rows.begin(), result.rows.end(), [](const DemoRow& row) {
        return row.plan.continued;
      })) {
    text += "Rows that start from another run train its extra steps on top.\n";
  }
  const std::string compared = comparison(routed, result.rows);
  if (!compared.empty()) {
    text += "\n## Against full attention and hand-made routes\n\n" + compared;
  }
  text += "\n## Shares of full / linear / window, percent of tokens\n\n" +
          layer_table(result.rows, shares_cell);
  text +=
      "\nWhere every expert runs on every token these are mean weights.\n"
      "\n## Full attention on `Filename` values : elsewhere, percent of tokens\n\n" +
      layer_table(result.rows, recall_cell);
  text += "\n## What would change the verdict\n\n" + what_would_change_it(routed, control) + "\n";
  if (!result.record.empty()) {
    text += "\n## A held-out record, marked by expert\n\n```\n" + result.record + "```\n";
  }
  text += "\n## How it was made\n\n";
  for (const std::string& fact : result.facts) text += fmt::format("- {}\n", fact);
  return text;
}

nlohmann::json to_json(const DemoResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const DemoRow& row : result.rows) {
    nlohmann::json seeds = nlohmann::json::array();
    for (const Evaluation& evaluation : row.seeds) seeds.push_back(sluice::to_json(evaluation));
    rows.push_back({{"title", row.plan.title}, {"run", row.plan.run}, {"seeds", seeds}});
  }
  return {
      {"title", result.title},
      {"verdict", verdict(row_of(result, RowRole::routed), row_of(result, RowRole::control))},
      {"rows", rows},
      {"facts", result.facts}};
}

}  // namespace sluice::tools
