// Random damage to JSON documents.
#pragma once

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/fuzz.h"

namespace sluice::testing {

using nlohmann::json;

inline json random_value(Random& random) {
  switch (random.below(9)) {
    case 0:
      return json();
    case 1:
      return random.chance(0.5);
    case 2:
      return random.between(-2, 300);
    case 3:
      return random.pick<int64_t>({INT64_MIN, INT64_MIN + 1, INT32_MAX + int64_t{1}, INT64_MAX});
    case 4:
      return random.pick<uint64_t>({uint64_t{1} << 63, UINT64_MAX});
    case 5:
      return random.pick({0.0, -0.0, 0.5, 1.0, 1.5, -1e-300, 5e-324, 1e300, 0.1 + 0.2});
    case 6:
      return random.pick(
          {"", "full", "ful", "wsd", "sample", "paper", "\xe2\x82\xac", "routed", "{}", "a\"b"});
    case 7:
      return json::array({random_value(random), random.below(3)});
    default:
      return json::object({{random.pick({"steps", "mode", "", "x.y"}), random_value(random)}});
  }
}

/// Every value of the document that may be replaced or removed, itself included.
inline void collect(json& value, std::vector<json*>& places) {
  places.push_back(&value);
  if (!value.is_structured()) return;
  for (json& entry : value) collect(entry, places);
}

/// One random change of a value, its place or its neighbours. What is left can be written as text.
inline void damage(Random& random, json& document) {
  std::vector<json*> places;
  collect(document, places);
  json& place = *random.pick(places);
  switch (random.below(6)) {
    case 0:
      place = random_value(random);
      break;
    case 1: {  // another part of the document
      const json other = *random.pick(places);
      place = other;
      break;
    }
    case 2:  // the nearest wrong number, or the nearest right one
      if (place.is_number_integer())
        place = int64_t(place.get<uint64_t>() + uint64_t(random.pick({-1, 1})));
      else if (place.is_number())
        place = place.get<double>() * random.pick({-1.0, 0.5, 2.0, 1 + 1e-15});
      break;
    case 3:
      if (place.is_structured() && !place.empty()) {
        auto entry = place.begin();
        std::advance(entry, random.below(place.size()));
        place.erase(entry);
      }
      break;
    case 4:
      if (place.is_object()) place[random.pick({"stepz", "text", "modes", ""})] = 1;
      if (place.is_array()) place.push_back(random_value(random));
      break;
    default:
      if (place.is_string()) place = place.get<std::string>() + random.pick({" ", "x", "s"});
  }
}

}  // namespace sluice::testing
