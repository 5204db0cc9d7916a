// Reading configurations: defaults, each wrong kind, unknown keys.
#include "models/config_fields.h"

#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using nlohmann::json;

enum class Colour { red, green };

struct Fields {
  int layers = 4;
  int64_t tokens = 7;
  uint64_t seed = 1;
  double rate = 0.5;
  bool tied = false;
  std::string name = "plain";
  std::vector<double> costs{1.0};
  std::vector<std::string> route;
  Colour colour = Colour::green;
};

Fields parse(const json& value) {
  Fields out;
  ConfigFields fields(value, "model");
  fields.read("layers", out.layers);
  fields.read("tokens", out.tokens);
  fields.read("seed", out.seed);
  fields.read("rate", out.rate);
  fields.read("tied", out.tied);
  fields.read("name", out.name);
  fields.read("costs", out.costs);
  fields.read("route", out.route);
  fields.read_enum("colour", out.colour, {"red", "green"});
  fields.finish();
  return out;
}

TEST(ConfigFields, AbsentKeysKeepTheirDefaults) {
  const Fields fields = parse(json::object());
  EXPECT_EQ(fields.layers, 4);
  EXPECT_EQ(fields.colour, Colour::green);
}

TEST(ConfigFields, ReadsEveryKind) {
  const Fields fields = parse(json::parse(R"({"layers": 2, "tokens": 1099511627776, "seed": 9,
      "rate": 1, "tied": true, "name": "x", "costs": [1, 0.5], "route": ["full"],
      "colour": "red"})"));
  EXPECT_EQ(fields.layers, 2);
  EXPECT_EQ(fields.tokens, int64_t{1} << 40);
  EXPECT_EQ(fields.seed, 9u);
  EXPECT_EQ(fields.rate, 1.0);
  EXPECT_TRUE(fields.tied);
  EXPECT_EQ(fields.name, "x");
  EXPECT_EQ(fields.costs, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(fields.route, (std::vector<std::string>{"full"}));
  EXPECT_EQ(fields.colour, Colour::red);
}

TEST(ConfigFields, WrongKindsNameKeyExpectationAndValue) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {R"([])", "config: model must be an object, got []"},
      {R"({"layers": "four"})", "config: model.layers must be an integer, got \"four\""},
      {R"({"layers": 2.5})", "config: model.layers must be an integer, got 2.5"},
      {R"({"layers": 4294967296})", "must be an integer of 32 bits, got 4294967296"},
      {R"({"tokens": 18446744073709551615})", "config: model.tokens must be an integer"},
      {R"({"seed": -1})", "config: model.seed must be an integer >= 0, got -1"},
      {R"({"rate": null})", "config: model.rate must be a number, got null"},
      {R"({"tied": 1})", "config: model.tied must be true or false, got 1"},
      {R"({"name": 1})", "config: model.name must be a string, got 1"},
      {R"({"costs": [1, "a"]})", "config: model.costs must be a list of numbers"},
      {R"({"route": "full"})", "config: model.route must be a list of strings"},
      {R"({"colour": "blue"})", "config: model.colour must be one of red, green, got \"blue\""},
  };
  for (const auto& c : cases) {
    SLUICE_EXPECT_THROW(parse(json::parse(c.text)), ArgumentError, c.message);
  }
}

TEST(ConfigFields, UnknownKeyNamesTheNearest) {
  SLUICE_EXPECT_THROW(
      parse(json::parse(R"({"layer": 3})")),
      ArgumentError,
      "config: unknown key model.layer, did you mean model.layers?");
  SLUICE_EXPECT_THROW(
      parse(json::parse(R"({"ruote": 3})")), ArgumentError, "did you mean model.route?");
}

TEST(ConfigFields, NestedIsNullWhenAbsent) {
  const json value = {{"inner", {{"a", 1}}}};
  ConfigFields fields(value, "");
  EXPECT_TRUE(fields.nested("outer").is_null());
  EXPECT_EQ(fields.nested("inner").at("a"), 1);
  EXPECT_EQ(fields.full_name("inner"), "inner");
  fields.finish();
}

}  // namespace
}  // namespace sluice
