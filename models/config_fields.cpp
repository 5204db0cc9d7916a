// See config_fields.h.
#include "models/config_fields.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/errors.h"

namespace sluice {
namespace {

const nlohmann::json kAbsent;

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({row[j - 1] + 1, above[j] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

/// A bad value may be a whole file; a message shows its start.
std::string excerpt(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : names) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

ConfigFields::ConfigFields(const nlohmann::json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  SLUICE_CHECK(
      object.is_object(),
      ArgumentError,
      "config: {} must be an object, got {}",
      path_.empty() ? "the top level" : path_,
      excerpt(object));
}

std::string ConfigFields::full_name(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const nlohmann::json* ConfigFields::find(const char* key) {
  asked_.emplace_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void ConfigFields::wrong_kind(
    const char* key, const char* expected, const nlohmann::json& actual) const {
  throw ArgumentError(
      fmt::format("config: {} must be {}, got {}", full_name(key), expected, excerpt(actual)));
}

void ConfigFields::read(const char* key, int64_t& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  const bool too_large = found->is_number_unsigned() &&
                         found->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max());
  if (!found->is_number_integer() || too_large) wrong_kind(key, "an integer", *found);
  value = found->get<int64_t>();
}

void ConfigFields::read(const char* key, int& value) {
  int64_t wide = value;
  read(key, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    wrong_kind(key, "an integer of 32 bits", wide);
  }
  value = static_cast<int>(wide);
}

void ConfigFields::read(const char* key, uint64_t& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number_unsigned()) wrong_kind(key, "an integer >= 0", *found);
  value = found->get<uint64_t>();
}

void ConfigFields::read(const char* key, double& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number()) wrong_kind(key, "a number", *found);
  value = found->get<double>();
}

void ConfigFields::read(const char* key, bool& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) wrong_kind(key, "true or false", *found);
  value = found->get<bool>();
}

void ConfigFields::read(const char* key, std::string& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_string()) wrong_kind(key, "a string", *found);
  value = found->get<std::string>();
}

void ConfigFields::read(const char* key, std::vector<double>& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  const auto number = [](const nlohmann::json& entry) { return entry.is_number(); };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), number)) {
    wrong_kind(key, "a list of numbers", *found);
  }
  value = found->get<std::vector<double>>();
}

void ConfigFields::read(const char* key, std::vector<std::string>& value) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return;
  const auto string = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), string)) {
    wrong_kind(key, "a list of strings", *found);
  }
  value = found->get<std::vector<std::string>>();
}

int ConfigFields::read_choice(
    const char* key, int value, std::initializer_list<const char*> names) {
  const nlohmann::json* found = find(key);
  if (found == nullptr) return value;
  std::string accepted;
  int position = 0;
  for (const char* name : names) {
    if (found->is_string() && found->get_ref<const std::string&>() == name) return position;
    accepted += (position++ == 0 ? "" : ", ") + std::string(name);
  }
  wrong_kind(key, ("one of " + accepted).c_str(), *found);
}

const nlohmann::json& ConfigFields::nested(const char* key) {
  const nlohmann::json* found = find(key);
  return found == nullptr ? kAbsent : *found;
}

void ConfigFields::finish() const {
  for (const auto& item : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), item.key()) != asked_.end()) continue;
    throw ArgumentError(fmt::format(
        "config: unknown key {}, did you mean {}?",
        full_name(item.key()),
        full_name(nearest_name(item.key(), asked_))));
  }
}

}  // namespace sluice
