// Element types and the two switches that turn a run-time dtype into a C++ type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace sluice {

enum class DType : uint8_t { f32, bf16, f64, i32, i64, u8 };

/// Brain float: the upper half of an IEEE f32. Conversion from f32 rounds to nearest even and
/// keeps NaN a NaN.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  bfloat16(float value) {  // NOLINT: implicit on purpose, kernels are templates over T
    const auto u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<uint16_t>((u >> 16) | 0x40u)
               : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const {  // NOLINT
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else {
    static_assert(std::is_same_v<T, uint8_t>, "not an element type");
    return DType::u8;
  }
}

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f64:
      return 8;
    case DType::i32:
      return 4;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64;
}

/// The type that sums of T are kept in: f64 for f64, f32 for f32 and bf16.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Calls `body.template operator()<T>()` with T the floating element type of `dtype`. The caller
/// has checked `is_floating(dtype)`; anything else does nothing.
template <class Body>
void dispatch_floating(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bfloat16>();
    case DType::f64:
      return body.template operator()<double>();
    default:
      return;
  }
}

/// Calls `body.template operator()<T>()` with T the element type of `dtype`.
template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::u8:
      return body.template operator()<uint8_t>();
    default:
      return dispatch_floating(dtype, body);
  }
}

}  // namespace sluice
