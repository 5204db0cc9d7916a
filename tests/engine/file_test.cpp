// Atomic writing: complete or not at all, even when the disk is full.
#include "engine/file.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/errors.h"
#include "engine/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  static std::string text_of(const std::string& path) {
    return std::string(MappedFile(path).text());
  }
  int64_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string path_ = folder_ + "/file";
};

TEST_F(Files, CommitReplacesTheOldFile) {
  std::ofstream(path_) << "old and longer";
  AtomicFile file(path_);
  file.write("new");
  EXPECT_EQ(text_of(path_), "old and longer");
  file.write("er");
  file.commit();
  EXPECT_EQ(text_of(path_), "newer");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, UncommittedFileLeavesNoTrace) {
  std::ofstream(path_) << "old";
  {
    AtomicFile file(path_);
    file.write("new");
    EXPECT_EQ(entries(), 2);
  }
  EXPECT_EQ(text_of(path_), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, TwoWritersDoNotMix) {
  AtomicFile first(path_);
  AtomicFile second(path_);
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(text_of(path_), "first");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, TakenTemporaryNameIsPassedOver) {
  // Another host with the same process id may be writing in a shared folder.
  std::string name;
  {
    const AtomicFile file(path_);
    name = fs::directory_iterator(folder_)->path().string();
  }
  const size_t dash = name.rfind('-') + 1;
  const int number = std::stoi(name.substr(dash));
  const std::string taken = name.substr(0, dash) + std::to_string(number + 1);
  std::ofstream(taken) << "theirs";
  AtomicFile file(path_);
  file.write("ours");
  file.commit();
  EXPECT_EQ(text_of(path_), "ours");
  EXPECT_EQ(text_of(taken), "theirs");
}

TEST_F(Files, RelativePathsHaveAFolder) {
  const fs::path outer = fs::current_path();
  fs::current_path(folder_);
  AtomicFile file("relative");
  file.write("x");
  file.commit();
  EXPECT_EQ(text_of("relative"), "x");
  fs::current_path(outer);
}

TEST_F(Files, NewFileHasTheModeOfAnyNewFile) {
  const mode_t outer = umask(027);
  AtomicFile file(path_);
  file.commit();
  umask(outer);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, mode_t{0640});
}

TEST_F(Files, ErrorsNamePathAndReason) {
  const std::string missing = folder_ + "/none/file";
  SLUICE_EXPECT_THROW(AtomicFile(missing), IoError, missing + ": cannot create a temporary file");
  SLUICE_EXPECT_THROW(AtomicFile(missing), IoError, "No such file or directory");
  SLUICE_EXPECT_THROW(MappedFile(missing), IoError, missing + ": cannot open: No such file");
  SLUICE_EXPECT_THROW(MappedFile(folder_), IoError, folder_ + ": must be a regular file");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  SLUICE_EXPECT_THROW(MappedFile(path_), IoError, "must be a regular file");
  fs::remove(path_);
  fs::create_directories(path_);
  std::ofstream(path_ + "/inside") << "x";
  AtomicFile file(path_);
  SLUICE_EXPECT_THROW((file.commit(), 0), IoError, "cannot rename the temporary file to it");
}

TEST_F(Files, EmptyFileHasNoBytes) {
  std::ofstream(path_) << "";
  const MappedFile file(path_);
  EXPECT_EQ(file.bytes(), 0u);
  EXPECT_EQ(file.text(), "");
}

TEST_F(Files, WritesToAMappingStayInTheProcess) {
  std::ofstream(path_) << "abc";
  const MappedFile file(path_);
  file.data()[0] = std::byte{'x'};
  EXPECT_EQ(file.text(), "xbc");
  EXPECT_EQ(text_of(path_), "abc");
}

// A limit on the size of files, in a child process: write fails half way as on a full disk.
TEST_F(Files, FullDiskLeavesTheOldFileIntact) {
  const NamedTensor small{"small", full({4}, 3)};
  save_safetensors(path_, {&small, 1});
  const std::string before = text_of(path_);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const NamedTensor large{"large", full({100'000}, 1)};
    try {
      save_safetensors(path_, {&large, 1});
    } catch (const IoError& error) {
      const bool named = std::string(error.what()).starts_with(path_ + ": cannot write: ");
      _exit(named ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(text_of(path_), before);
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace sluice
