// The exceptions that cross the public interface, and the check that throws them.
// A message reads "op: argument must be EXPECTED, got ACTUAL".
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/core.h>

namespace sluice {

/// Base of every error that the library throws on bad input or bad state.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Extents or ranks that do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A dtype that the operation does not take, or two that differ.
class DTypeError : public Error {
 public:
  using Error::Error;
};

/// Inputs on different devices, or an operation that the device lacks.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A value out of its range.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be read or written, or does not hold what it should.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A gradient that cannot be computed: a stale saved tensor, a graph that was released.
class GradError : public Error {
 public:
  using Error::Error;
};

}  // namespace sluice

/// Throws `ErrorType` with the formatted message unless `condition` holds. The arguments are
/// evaluated only on failure.
#define SLUICE_CHECK(condition, ErrorType, ...)                            \
  do {                                                                     \
    if (!(condition)) throw ::sluice::ErrorType(fmt::format(__VA_ARGS__)); \
  } while (false)
