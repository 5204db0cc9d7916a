// Files: reading by mapping, and writing so that a crash or a full disk leaves the old file intact.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace sluice {

/// The bytes of a file, mapped privately: pages are read when touched, and what is written to them
/// stays in this process and never reaches the file.
///
/// Replacing the file by rename, as AtomicFile does, leaves the mapping on the old contents.
/// Shortening it in place while it is mapped makes access to the lost pages a SIGBUS.
/// Thread-safety: none is needed for reading.
class MappedFile {
 public:
  /// Throws IoError with the path and the system's reason; also when it is not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Makes the entries of a folder durable: a new or renamed one is only when its folder is.
/// Throws IoError.
void sync_folder(const std::string& folder);

/// A file that appears at its path complete or not at all.
///
/// Bytes go to a temporary file in the same folder; `commit` makes them durable (fsync of file and
/// folder) and renames. Until then, and for ever when a write fails or the object is destroyed
/// uncommitted, the old file stays as it was and the temporary one is removed. A process that is
/// killed leaves a file PATH.tmp-PID-NUMBER behind, which nothing reads. A symbolic link at the
/// path is replaced, not followed.
/// Thread-safety: none for one object; many may write to one path, the last commit wins.
class AtomicFile {
 public:
  /// Throws IoError with the path and the system's reason.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Throws IoError, after which only destruction is allowed.
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Puts the file at its path; nothing may be written afterwards. Throws IoError.
  void commit();

 private:
  void close_file() noexcept;
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  std::string temporary_;  // empty when there is nothing to remove
  int descriptor_ = -1;
};

}  // namespace sluice
