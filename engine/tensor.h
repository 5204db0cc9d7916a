// A strided view of typed memory, held by handle. Gradients hang on it as an opaque pointer that
// only autograd/ can read.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device.h"
#include "engine/dtype.h"
#include "engine/shape.h"
#include "engine/storage.h"

namespace sluice {

namespace autograd {
struct GradMeta;
}

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = {};
};

/// A handle: copies name the same tensor, as in `Tensor b = a`. Default-constructed it is
/// undefined. Thread-safety: as a shared_ptr; reading one tensor from many threads is safe, writing
/// is not.
class Tensor {
 public:
  Tensor() = default;

  /// A view of `storage` from element `offset`. Throws ShapeError when it would reach outside.
  Tensor(
      std::shared_ptr<Storage> storage,
      DType dtype,
      const Shape& shape,
      const Strides& strides,
      int64_t offset);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return impl_->shape; }
  const Strides& strides() const { return impl_->strides; }
  int rank() const { return impl_->shape.rank(); }
  /// Extent of `axis`; negative axes count from the end. Throws ShapeError.
  int64_t size(int axis) const;
  /// Stride of `axis` in elements; negative axes count from the end. Throws ShapeError.
  int64_t stride(int axis) const;
  int64_t numel() const { return impl_->shape.numel(); }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->storage->device(); }
  int64_t offset() const { return impl_->offset; }
  /// Elements lie row-major without gaps (extents of 1 never count).
  bool contiguous() const;

  const std::shared_ptr<Storage>& storage() const { return impl_->storage; }

  /// First element, untyped.
  void* raw() const { return impl_->storage->data() + impl_->offset * int64_t(size_of(dtype())); }
  /// First element. Throws DTypeError when T is not the dtype.
  template <class T>
  T* data() const {
    require_dtype(dtype_of<T>());
    return static_cast<T*>(raw());
  }

  /// The one element. Throws ShapeError unless numel() == 1.
  template <class T>
  T item() const {
    require_single();
    return *data<T>();
  }

  /// All elements in row-major order, whatever the strides.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    require_dtype(dtype_of<T>());
    copy_to(values.data());
    return values;
  }

  /// The same memory seen with another shape and strides; no gradient flows through it.
  Tensor alias(const Shape& shape, const Strides& strides, int64_t offset) const;
  /// The same memory without its gradient history.
  Tensor detach() const { return alias(shape(), strides(), offset()); }

  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }
  /// True when nothing else refers to this tensor or its memory, so it may be overwritten.
  bool unique() const { return impl_.use_count() == 1 && impl_->storage.use_count() == 1; }

  const std::shared_ptr<autograd::GradMeta>& grad_meta() const { return impl_->grad_meta; }
  void set_grad_meta(std::shared_ptr<autograd::GradMeta> meta) {
    impl_->grad_meta = std::move(meta);
  }

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    DType dtype;
    Shape shape;
    Strides strides;
    int64_t offset;
    std::shared_ptr<autograd::GradMeta> grad_meta;
  };

  void require_dtype(DType dtype) const;
  void require_single() const;
  void copy_to(void* destination) const;

  std::shared_ptr<Impl> impl_;
};

/// Dense tensor with unspecified contents (0xFF bytes under poison).
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, double value, TensorOptions options = {});
/// Dense, of the shape, dtype and device of `like`.
Tensor empty_like(const Tensor& like);
Tensor zeros_like(const Tensor& like);

/// Copies `values`, row-major. Throws ShapeError when their number differs from the shape's.
template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape);
template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape) {
  return from_values(std::span<const T>(values), shape);
}

/// Normal(0, 1) / uniform(0, 1) numbers, a pure function of (seed, stream) and the element's index.
/// The last bit of normal ones may differ between machines: log and cos are the C library's.
Tensor randn(const Shape& shape, uint64_t seed, uint64_t stream = 0, TensorOptions options = {});
Tensor rand(const Shape& shape, uint64_t seed, uint64_t stream = 0, TensorOptions options = {});

/// A dense tensor with the same values: `tensor` itself when it is dense already. No gradient.
Tensor to_contiguous(const Tensor& tensor);
/// A fresh dense copy. No gradient.
Tensor clone(const Tensor& tensor);
/// Copy in another dtype, as `convert` does it; `tensor` itself when it has it. No gradient.
Tensor to_dtype(const Tensor& tensor, DType dtype);
/// into := value, element by element, any strides, dtypes equal; bumps the version. The elements of
/// `into` lie apart from each other, and from `value` unless both views are the same.
void copy_into(const Tensor& into, const Tensor& value);
/// into += value, likewise.
void accumulate_into(const Tensor& into, const Tensor& value);
/// Sets every element to `convert`ed `value`; bumps the version.
void fill(const Tensor& tensor, double value);

/// "f32 (2, 3) on cpu"
std::string describe(const Tensor& tensor);

}  // namespace sluice
