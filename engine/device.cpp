#include "engine/device.h"

#include <charconv>

#include "engine/errors.h"

namespace sluice {

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::simt:
      return "simt";
    case DeviceType::cuda:
      return fmt::format("cuda:{}", device.index);
  }
  return "?";
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return {DeviceType::cpu, 0};
  if (text == "simt") return {DeviceType::simt, 0};
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
    if (error == std::errc() && stop == end && index >= 0) return {DeviceType::cuda, index};
  }
  throw ArgumentError(fmt::format("device: must be cpu, simt, cuda or cuda:INDEX, got '{}'", text));
}

}  // namespace sluice
