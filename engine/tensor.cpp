// Handles, factories, and the few element-wise loops that the engine itself needs.
#include "engine/tensor.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "engine/context.h"
#include "engine/errors.h"
#include "engine/philox.h"
#include "engine/strided.h"

namespace sluice {

Tensor::Tensor(
    std::shared_ptr<Storage> storage,
    DType dtype,
    const Shape& shape,
    const Strides& strides,
    int64_t offset) {
  int64_t first = offset;
  int64_t last = offset;
  bool overflow = false;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(shape[axis] - 1, strides[size_t(axis)], &reach);
    int64_t& end = reach < 0 ? first : last;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  const auto elements = static_cast<int64_t>(storage->bytes() / size_of(dtype));
  SLUICE_CHECK(
      shape.numel() == 0 || (!overflow && first >= 0 && last < elements),
      ShapeError,
      "tensor: view must stay inside {} elements, got {} to {}",
      elements,
      first,
      last);
  impl_ = std::make_shared<Impl>(Impl{std::move(storage), dtype, shape, strides, offset, nullptr});
}

int64_t Tensor::size(int axis) const { return shape()[normalize_axis(axis, rank(), "size")]; }

int64_t Tensor::stride(int axis) const {
  return strides()[static_cast<size_t>(normalize_axis(axis, rank(), "stride"))];
}

bool Tensor::contiguous() const {
  if (numel() == 0) return true;
  int64_t step = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape()[axis] != 1 && strides()[axis] != step) return false;
    step *= shape()[axis];
  }
  return true;
}

Tensor Tensor::alias(const Shape& shape, const Strides& strides, int64_t offset) const {
  return Tensor(storage(), dtype(), shape, strides, offset);
}

void Tensor::require_dtype(DType wanted) const {
  SLUICE_CHECK(
      dtype() == wanted,
      DTypeError,
      "data: dtype must be {}, got {}",
      name_of(wanted),
      name_of(dtype()));
}

void Tensor::require_single() const {
  SLUICE_CHECK(
      numel() == 1,
      ShapeError,
      "item: tensor must have one element, got shape {}",
      to_string(shape()));
}

void Tensor::copy_to(void* destination) const {
  const Tensor dense = to_contiguous(*this);
  if (numel() > 0) std::memcpy(destination, dense.raw(), size_t(numel()) * size_of(dtype()));
}

Tensor empty(const Shape& shape, TensorOptions options) {
  SLUICE_CHECK(
      options.device.type != DeviceType::cuda,
      DeviceError,
      "empty: not available on device {}",
      to_string(options.device));
  int64_t bytes = 0;
  SLUICE_CHECK(
      !__builtin_mul_overflow(shape.numel(), int64_t(size_of(options.dtype)), &bytes),
      ShapeError,
      "empty: bytes of shape {} must fit in 63 bits",
      to_string(shape));
  auto storage = std::make_shared<Storage>(size_t(bytes), options.device, cpu_allocator());
  return Tensor(std::move(storage), options.dtype, shape, contiguous_strides(shape), 0);
}

Tensor zeros(const Shape& shape, TensorOptions options) {
  Tensor tensor = empty(shape, options);
  const size_t bytes = size_t(tensor.numel()) * size_of(options.dtype);
  if (bytes > 0) std::memset(tensor.raw(), 0, bytes);
  return tensor;
}

Tensor full(const Shape& shape, double value, TensorOptions options) {
  Tensor tensor = empty(shape, options);
  fill(tensor, value);
  return tensor;
}

Tensor empty_like(const Tensor& like) { return empty(like.shape(), {like.dtype(), like.device()}); }

Tensor zeros_like(const Tensor& like) { return zeros(like.shape(), {like.dtype(), like.device()}); }

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape) {
  SLUICE_CHECK(
      static_cast<int64_t>(values.size()) == shape.numel(),
      ShapeError,
      "from_values: shape {} must hold {} values",
      to_string(shape),
      values.size());
  Tensor tensor = empty(shape, {dtype_of<T>(), {}});
  if (!values.empty()) std::memcpy(tensor.raw(), values.data(), values.size_bytes());
  return tensor;
}

template Tensor from_values<float>(std::span<const float>, const Shape&);
template Tensor from_values<bfloat16>(std::span<const bfloat16>, const Shape&);
template Tensor from_values<double>(std::span<const double>, const Shape&);
template Tensor from_values<int32_t>(std::span<const int32_t>, const Shape&);
template Tensor from_values<int64_t>(std::span<const int64_t>, const Shape&);
template Tensor from_values<uint8_t>(std::span<const uint8_t>, const Shape&);

namespace {

// Element i draws from counter i, so its value depends on neither the shape nor the thread.
template <class Draw>
Tensor random_tensor(const Shape& shape, TensorOptions options, const char* op, Draw&& draw) {
  SLUICE_CHECK(
      is_floating(options.dtype),
      DTypeError,
      "{}: dtype must be floating, got {}",
      op,
      name_of(options.dtype));
  Tensor tensor = empty(shape, options);
  dispatch_floating(options.dtype, [&]<class T>() {
    T* data = tensor.data<T>();
    const int64_t count = tensor.numel();
    const int64_t chunks = (count + kParallelElements - 1) / kParallelElements;
    parallel_for(cpu_context().threads, chunks, [&](int64_t chunk) {
      const int64_t last = std::min(count, (chunk + 1) * kParallelElements);
      for (int64_t i = chunk * kParallelElements; i < last; ++i) {
        data[i] = static_cast<T>(static_cast<Accumulator<T>>(draw(uint64_t(i))));
      }
    });
  });
  return tensor;
}

}  // namespace

Tensor randn(const Shape& shape, uint64_t seed, uint64_t stream, TensorOptions options) {
  return random_tensor(shape, options, "randn", [&](uint64_t i) {
    const auto word = philox4x32({seed, stream}, i);
    const double radius = std::sqrt(-2.0 * std::log(unit_double(word[0], word[1])));
    return radius * std::cos(2.0 * std::numbers::pi * unit_double(word[2], word[3]));
  });
}

Tensor rand(const Shape& shape, uint64_t seed, uint64_t stream, TensorOptions options) {
  return random_tensor(shape, options, "rand", [&](uint64_t i) {
    const auto word = philox4x32({seed, stream}, i);
    return double(unit_float(word[0]));
  });
}

namespace {

void check_same(const Tensor& into, const Tensor& value, const char* op) {
  SLUICE_CHECK(
      into.shape() == value.shape(),
      ShapeError,
      "{}: shapes must be equal, got {} and {}",
      op,
      to_string(into.shape()),
      to_string(value.shape()));
  SLUICE_CHECK(
      into.dtype() == value.dtype(),
      DTypeError,
      "{}: dtypes must be equal, got {} and {}",
      op,
      name_of(into.dtype()),
      name_of(value.dtype()));
}

template <class Combine>
void combine_into(const Tensor& into, const Tensor& value, Combine&& combine) {
  const StridedLoop<2> loop(into.shape(), {into.strides(), value.strides()});
  dispatch_any(into.dtype(), [&]<class T>() {
    T* to = into.data<T>();
    const T* from = value.data<T>();
    const auto [to_step, from_step] = loop.inner_stride;
    const bool dense = to_step == 1 && from_step == 1;
    for_each_run(cpu_context().threads, loop, [&](const auto& offset, int64_t count) {
      T* a = to + offset[0];
      const T* b = from + offset[1];
      if (dense) {
        for (int64_t i = 0; i < count; ++i) combine(a[i], b[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) combine(a[i * to_step], b[i * from_step]);
      }
    });
  });
  into.storage()->bump_version();
}

}  // namespace

void copy_into(const Tensor& into, const Tensor& value) {
  check_same(into, value, "copy_into");
  combine_into(into, value, [](auto& a, auto b) { a = b; });
}

void accumulate_into(const Tensor& into, const Tensor& value) {
  check_same(into, value, "accumulate_into");
  combine_into(into, value, [](auto& a, auto b) {
    a = static_cast<std::remove_reference_t<decltype(a)>>(a + b);
  });
}

void fill(const Tensor& tensor, double value) {
  const StridedLoop<1> loop(tensor.shape(), {tensor.strides()});
  dispatch_any(tensor.dtype(), [&]<class T>() {
    const auto element = convert<T>(value);
    T* data = tensor.data<T>();
    for_each_run(cpu_context().threads, loop, [&](const auto& offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) data[offset[0] + i * loop.inner_stride[0]] = element;
    });
  });
  tensor.storage()->bump_version();
}

Tensor to_contiguous(const Tensor& tensor) { return tensor.contiguous() ? tensor : clone(tensor); }

Tensor clone(const Tensor& tensor) {
  Tensor copy = empty_like(tensor);
  copy_into(copy, tensor);
  return copy;
}

Tensor to_dtype(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor out = empty(tensor.shape(), {dtype, tensor.device()});
  const StridedLoop<2> loop(tensor.shape(), {out.strides(), tensor.strides()});
  dispatch_any(dtype, [&]<class To>() {
    To* to = out.data<To>();
    dispatch_any(tensor.dtype(), [&]<class From>() {
      const From* from = tensor.data<From>();
      const auto [to_step, from_step] = loop.inner_stride;
      for_each_run(cpu_context().threads, loop, [&](const auto& offset, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          to[offset[0] + i * to_step] = convert<To>(from[offset[1] + i * from_step]);
        }
      });
    });
  });
  return out;
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format(
      "{} {} on {}",
      name_of(tensor.dtype()),
      to_string(tensor.shape()),
      to_string(tensor.device()));
}

}  // namespace sluice
