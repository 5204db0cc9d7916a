// See metrics.h.
#include "models/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "engine/errors.h"
#include "engine/file.h"

namespace sluice {
namespace {

/// Length of the leading lines of `path` whose step is at most `last_step`.
size_t kept_bytes(const std::string& path, int64_t last_step) {
  const MappedFile file(path);
  const std::string_view text = file.text();
  size_t kept = 0;
  while (kept < text.size()) {
    const size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;
    const auto line = nlohmann::json::parse(text.substr(kept, end - kept), nullptr, false);
    if (!line.is_object()) break;
    const nlohmann::json step = line.value("step", nlohmann::json());
    SLUICE_CHECK(
        step.is_number_integer(),
        IoError,
        "{}: step must be an integer in each line, got {}",
        path,
        step.dump());
    if (step.get<int64_t>() > last_step) break;
    kept = end + 1;
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, int64_t last_step)
    : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_.number < 0) fail("open");
  // Other reasons are of file systems without locks, which must not keep a run from starting.
  if (::flock(descriptor_.number, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    throw IoError(fmt::format("{}: another process is training in this folder", folder));
  }
  const auto length = static_cast<off_t>(kept_bytes(path, last_step));
  if (::ftruncate(descriptor_.number, length) != 0 ||
      ::lseek(descriptor_.number, length, SEEK_SET) != length) {
    fail("truncate");
  }
}

MetricsLog::Descriptor::~Descriptor() {
  if (number >= 0) ::close(number);
}

void MetricsLog::append(const nlohmann::json& line) {
  const std::string text = line.dump() + "\n";
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(descriptor_.number, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write");
    written += static_cast<size_t>(count);
  }
}

void MetricsLog::sync() {
  // EINVAL: a pipe or device, which has nothing to sync.
  if (::fsync(descriptor_.number) != 0 && errno != EINVAL) fail("sync");
}

void MetricsLog::fail(const char* action) const {
  throw IoError(fmt::format("{}: cannot {}: {}", path_, action, std::strerror(errno)));
}

}  // namespace sluice
