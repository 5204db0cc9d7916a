// See demo_plan.h.
#include "tools/demo_plan.h"

#include <algorithm>
#include <filesystem>

#include "engine/errors.h"
#include "models/config_fields.h"
#include "models/run_config.h"

namespace sluice::tools {
namespace {

using nlohmann::json;

json read_extended(const std::string& path) {
  json document = read_json(path);
  if (!document.is_object() || !document.contains("extends")) return document;
  SLUICE_CHECK(document["extends"].is_string(), ArgumentError, "{}: extends must be a path", path);
  const auto folder = std::filesystem::path(path).parent_path();
  json base = read_extended((folder / document["extends"].get<std::string>()).string());
  document.erase("extends");
  base.merge_patch(document);
  return base;
}

bool has_run(const std::vector<PlannedRun>& runs, const std::string& name) {
  return std::any_of(
      runs.begin(), runs.end(), [&](const PlannedRun& run) { return run.name == name; });
}

PlannedRun read_run(const json& entry, const json& base, const std::vector<PlannedRun>& before) {
  PlannedRun run;
  ConfigFields fields(entry, "runs");
  fields.read("name", run.name);
  fields.read("start_from", run.start_from);
  const json& changes = fields.nested("changes");
  fields.finish();
  SLUICE_CHECK(
      !run.name.empty() && !has_run(before, run.name),
      ArgumentError,
      "plan: each run needs a name of its own, got '{}'",
      run.name);
  SLUICE_CHECK(
      run.start_from.empty() || has_run(before, run.start_from),
      ArgumentError,
      "plan: run {} starts from '{}', which is no earlier run",
      run.name,
      run.start_from);
  run.config = base.is_null() ? json::object() : base;
  if (!changes.is_null()) run.config.merge_patch(changes);
  run_config_from_json(run.config);  // a mistake should show before the first run, not after it
  return run;
}

RunKind kind_of(const PlannedRun& run) {
  const MetaAttentionConfig config = run_config_from_json(run.config).model;
  bool all_full = true;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.kind(layer) == LayerKind::given) return RunKind::hand_made;
    all_full = all_full && config.kind(layer) == LayerKind::full;
  }
  return all_full ? RunKind::all_full : RunKind::other;
}

PlannedRow read_row(const json& entry, const std::vector<PlannedRun>& runs) {
  PlannedRow row;
  std::string mode(name_of(row.mode));
  ConfigFields fields(entry, "rows");
  fields.read("title", row.title);
  fields.read("run", row.run);
  fields.read("mode", mode);
  fields.read_enum("role", row.role, {"other", "routed", "control"});
  fields.finish();
  row.mode = parse_route_mode(mode);
  SLUICE_CHECK(
      has_run(runs, row.run),
      ArgumentError,
      "plan: row '{}' is of '{}', which is no run",
      row.title,
      row.run);
  const auto run = std::find_if(
      runs.begin(), runs.end(), [&row](const PlannedRun& one) { return one.name == row.run; });
  row.kind = kind_of(*run);
  row.continued = !run->start_from.empty();
  return row;
}

}  // namespace

DemoPlan read_plan(const std::string& path) {
  const json document = read_extended(path);
  DemoPlan plan;
  ConfigFields fields(document, "");
  std::vector<double> seeds = {1};
  fields.read("title", plan.title);
  fields.read("seeds", seeds);
  fields.read("evaluate_windows", plan.evaluate_windows);
  fields.read("evaluate_first_window", plan.first_window);
  fields.read("timing_batches", plan.timing_batches);
  const json& base = fields.nested("base");
  const json& runs = fields.nested("runs");
  const json& rows = fields.nested("rows");
  fields.finish();
  for (const double seed : seeds) plan.seeds.push_back(static_cast<uint64_t>(seed));
  for (const json& entry : runs) plan.runs.push_back(read_run(entry, base, plan.runs));
  for (const json& entry : rows) plan.rows.push_back(read_row(entry, plan.runs));
  for (const RowRole role : {RowRole::routed, RowRole::control}) {
    const auto count = std::count_if(
        plan.rows.begin(), plan.rows.end(), [role](const auto& row) { return row.role == role; });
    SLUICE_CHECK(
        count == 1,
        ArgumentError,
        "plan: exactly one row must have the role {}, got {}",
        role == RowRole::routed ? "routed" : "control",
        count);
  }
  SLUICE_CHECK(
      plan.evaluate_windows >= 0 && plan.first_window >= 0,
      ArgumentError,
      "plan: evaluate_windows and evaluate_first_window must be >= 0, got {} and {}",
      plan.evaluate_windows,
      plan.first_window);
  SLUICE_CHECK(
      !plan.seeds.empty() && plan.timing_batches > 0,
      ArgumentError,
      "plan: seeds must not be empty and timing_batches must be > 0, got {} and {}",
      plan.seeds.size(),
      plan.timing_batches);
  return plan;
}

std::string describe_windows(const DemoPlan& plan, int64_t windows) {
  const int64_t first = plan.first_window;
  std::string text = fmt::format("held-out windows {}..{}", first, first + windows - 1);
  if (first > 0) {
    text += fmt::format(", windows before {} were used to choose the recipe", first);
  }
  return text;
}

}  // namespace sluice::tools
