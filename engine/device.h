// Where a tensor's memory lives and which kernels run on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

enum class DeviceType : uint8_t { cpu, simt, cuda };

/// `cpu`: host kernels. `simt`: the GPU sources executed on the host. `cuda`: a GPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

std::string to_string(Device device);

/// Reads "cpu", "simt", "cuda" or "cuda:1". Throws ArgumentError naming the accepted forms.
Device parse_device(std::string_view text);

}  // namespace sluice
