// Plain POSIX calls; every failure is reported with the path and errno text.

#include "engine/file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/errors.h"

namespace sluice {
namespace {

[[noreturn]] void io_error(const std::string& path, const char* action) {
  throw IoError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(errno)));
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

void sync_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  sync_folder(parent.empty() ? "." : parent.string());
}

}  // namespace

void sync_folder(const std::string& folder) {
  const Descriptor descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (descriptor.number < 0) io_error(folder, "open the folder");
  // EINVAL: a file system that has nothing to sync for folders.
  if (::fsync(descriptor.number) != 0 && errno != EINVAL) io_error(folder, "sync the folder");
}

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK keeps a named pipe from blocking before it is refused; regular files ignore it.
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.number < 0) io_error(path, "open");
  struct stat status {};
  if (::fstat(descriptor.number, &status) != 0) io_error(path, "read its size");
  SLUICE_CHECK(S_ISREG(status.st_mode), IoError, "{}: must be a regular file", path);
  bytes_ = static_cast<size_t>(status.st_size);
  if (bytes_ == 0) return;  // mmap refuses empty files
  void* const mapped = ::mmap(
      nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor.number, 0);
  if (mapped == MAP_FAILED) io_error(path, "map");
  data_ = static_cast<std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  static std::atomic<uint64_t> counter{0};
  // Hosts that share a folder may share a process id: names that are taken are passed over.
  do {
    temporary_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    temporary_.clear();
    fail("create a temporary file beside it");
  }
}

AtomicFile::~AtomicFile() {
  close_file();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("sync");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the temporary file to it");
  temporary_.clear();
  sync_folder_of(path_);
}

void AtomicFile::close_file() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail(const char* action) const { io_error(path_, action); }

}  // namespace sluice
