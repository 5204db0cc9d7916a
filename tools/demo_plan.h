// The runs and rows of a demonstration, as data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/meta_attention_config.h"

namespace sluice::tools {

/// One training run; every seed of the plan trains it once.
struct PlannedRun {
  std::string name;        ///< its folder is NAME-SEED
  nlohmann::json config;   ///< the plan's base with this run's changes
  std::string start_from;  ///< an earlier run whose parameters it begins with; "" for none
};

/// What a row is to the verdict.
enum class RowRole : uint8_t { other, routed, control };

/// What the layers of a row's run are, where the report compares the routed row with it.
enum class RunKind : uint8_t {
  other,
  all_full,   ///< full attention in every layer
  hand_made,  ///< a layer of kind `given`
};

/// One row of the table: a run's last checkpoint in one mode.
struct PlannedRow {
  std::string title;
  std::string run;
  RouteMode mode = RouteMode::hard;
  RowRole role = RowRole::other;
  RunKind kind = RunKind::other;  ///< read off the run's configuration
  bool continued = false;         ///< its run starts from another one
};

struct DemoPlan {
  std::string title;
  std::vector<uint64_t> seeds;
  int64_t evaluate_windows = 0;  ///< held-out windows; 0: all
  int64_t first_window = 0;      ///< windows before it were used to choose the recipe
  int64_t timing_batches = 24;   ///< forward passes a row is timed on, in turn with the others
  std::vector<PlannedRun> runs;
  std::vector<PlannedRow> rows;
};

/// Reads {"extends": FILE, "title", "seeds", "evaluate_windows",
/// "evaluate_first_window", "timing_batches",
/// "base": CONFIG, "runs": [{"name", "changes": CONFIG, "start_from"}],
/// "rows": [{"title", "run", "mode", "role"}]}. With "extends" the document is a patch (RFC 7386)
/// of that plan; the path is relative to the plan's own. Throws IoError, ArgumentError (unknown
/// key, a row or start_from without its run, no routed or control row, a configuration that does
/// not validate).
DemoPlan read_plan(const std::string& path);

/// "held-out windows A..B", and what the windows before A were used for, for a report of `windows`
/// windows.
std::string describe_windows(const DemoPlan& plan, int64_t windows);

}  // namespace sluice::tools
