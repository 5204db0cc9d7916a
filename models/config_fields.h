// Reading a JSON object into plain fields, with messages that name the key, the expected kind and,
// for a key that nobody asked for, the nearest one that exists.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Fields of one JSON object. Ask for each key once, then call finish():
///
///   ConfigFields fields(json, "model");
///   fields.read("layers", config.layers);
///   fields.finish();
///
/// A key that is absent leaves the field as it is.
/// Throws ArgumentError: not an object, a value of the wrong kind ("config: model.layers must be an
/// integer, got "four""), and in finish() a key that was never asked for ("config: unknown key
/// model.layer, did you mean model.layers?").
class ConfigFields {
 public:
  /// `path` is the object's place in the whole configuration, "" for the top.
  ConfigFields(const nlohmann::json& object, std::string path);

  void read(const char* key, int& value);
  void read(const char* key, int64_t& value);
  void read(const char* key, uint64_t& value);
  void read(const char* key, double& value);
  void read(const char* key, bool& value);
  void read(const char* key, std::string& value);
  void read(const char* key, std::vector<double>& value);
  void read(const char* key, std::vector<std::string>& value);

  /// One of `names`; `value` becomes the enumerator with the same position.
  template <class Enum>
  void read_enum(const char* key, Enum& value, std::initializer_list<const char*> names) {
    value = static_cast<Enum>(read_choice(key, static_cast<int>(value), names));
  }

  /// The value of `key` as it stands, null when absent: for nested objects.
  const nlohmann::json& nested(const char* key);
  /// "model.layers" for key "layers".
  std::string full_name(std::string_view key) const;

  void finish() const;

 private:
  const nlohmann::json* find(const char* key);
  int read_choice(const char* key, int value, std::initializer_list<const char*> names);
  [[noreturn]] void wrong_kind(
      const char* key, const char* expected, const nlohmann::json& actual) const;

  const nlohmann::json& object_;
  std::string path_;
  std::vector<std::string> asked_;
};

/// The entry of `names` with the smallest edit distance to `name`; "" when there is none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace sluice
