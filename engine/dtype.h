// Element types and the two switches that turn a run-time dtype into a C++ type.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace sluice {

enum class DType : uint8_t { f32, bf16, f64, i32, i64, u8 };

/// Brain float: the upper half of an IEEE f32. Conversion rounds to nearest even and keeps NaN a
/// NaN.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  [[gnu::always_inline]] bfloat16(
      float value) {  // NOLINT: implicit on purpose, kernels are templates over T
    const auto u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<uint16_t>((u >> 16) | 0x40u)
               : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  /// Rounds once: via a float rounded to nearest it would round twice, and ties the wrong way.
  template <std::same_as<double> T>
  [[gnu::always_inline]] explicit bfloat16(T value) : bfloat16(round_to_odd(value)) {}
  [[gnu::always_inline]] operator float() const {  // NOLINT
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  // Truncates to f32 and sets the last bit when anything was lost, so that a value beside a tie of
  // the next rounding stays beside it.
  [[gnu::always_inline]] static float round_to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    const auto back = static_cast<double>(nearest);
    if (back == value || value != value) return nearest;
    auto u = std::bit_cast<uint32_t>(nearest);
    const bool away = (back < 0 ? -back : back) > (value < 0 ? -value : value);
    if (away) --u;
    return std::bit_cast<float>(u | 1u);
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

/// `value` as another element type. Floating results are rounded once, to nearest even. From a
/// floating value to an integer type fractions are dropped, values out of range give the nearest
/// end of it and NaN gives 0, where C++ leaves the result undefined.
template <class To, class From>
[[gnu::always_inline]] inline To convert(From value) {
  if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    using Limits = std::numeric_limits<To>;
    const auto wide = static_cast<double>(value);
    if (wide != wide) return To(0);
    if (wide <= static_cast<double>(Limits::min())) return Limits::min();
    if (wide >= static_cast<double>(Limits::max())) return Limits::max();
    return static_cast<To>(wide);
  } else if constexpr (std::is_same_v<To, bfloat16> && std::is_same_v<From, int64_t>) {
    // Beyond 2^53 an f64 would round first: the 11 bits that may not fit become one sticky bit.
    constexpr int64_t kLost = (1 << 11) - 1;
    const bool fits = value < (int64_t{1} << 53) && value > -(int64_t{1} << 53);
    if (!fits && (value & kLost) != 0) value = (value & ~kLost) | (kLost + 1);
    return bfloat16(static_cast<double>(value));
  } else if constexpr (std::is_same_v<To, bfloat16> && std::is_integral_v<From>) {
    return bfloat16(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

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
