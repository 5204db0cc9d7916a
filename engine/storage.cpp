#include "engine/storage.h"

namespace sluice {

Storage::Storage(size_t bytes, Device device, std::shared_ptr<Allocator> allocator)
    : data_(static_cast<std::byte*>(allocator->allocate(bytes))),
      bytes_(bytes),
      device_(device),
      allocator_(std::move(allocator)) {}

Storage::Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner)
    : data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      device_(device),
      owner_(std::move(owner)) {}

Storage::~Storage() {
  if (allocator_) allocator_->deallocate(data_, bytes_);
}

}  // namespace sluice
