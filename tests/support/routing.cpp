#include "tests/support/routing.h"

#include <new>

#include <sys/mman.h>

#include "engine/philox.h"

namespace sluice::testing {

Tensor random_ids(const Shape& shape, int experts, uint64_t seed, bool drop) {
  std::vector<int32_t> ids(size_t(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto word = philox4x32({seed, 99}, i);
    const bool dropped = drop && word[1] % 8 == 0;
    ids[i] = dropped ? -1 : int32_t(word[0] % uint32_t(experts));
  }
  return from_values(ids, shape);
}

Tensor sparse_zeros(const Shape& shape, DType dtype) {
  const size_t bytes = size_t(shape.numel()) * size_of(dtype);
  void* data = mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  const std::shared_ptr<void> owner(data, [bytes](void* mapped) { munmap(mapped, bytes); });
  auto storage = std::make_shared<Storage>(data, bytes, Device{}, owner);
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape), 0);
}

}  // namespace sluice::testing
