// Texts, masks and the windows drawn from them.
#include "models/batches.h"

#include <array>
#include <numeric>
#include <string>

#include "engine/errors.h"
#include "models/text_data.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::vector<uint8_t> counting_text(size_t bytes) {
  std::vector<uint8_t> text(bytes);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<uint8_t>(i % 251);
  return text;
}

TEST(Batches, TargetsAreTheNextByte) {
  const auto text = counting_text(600);
  const std::array<int64_t, 3> starts{0, 249, 592};
  const Batch batch = window_batch(text, 7, starts);
  const auto tokens = batch.tokens.to_vector<int32_t>();
  const auto targets = batch.targets.to_vector<int32_t>();
  for (size_t row = 0; row < 3; ++row) {
    for (size_t t = 0; t < 7; ++t) {
      EXPECT_EQ(tokens[row * 7 + t], (starts[row] + int64_t(t)) % 251);
      EXPECT_EQ(targets[row * 7 + t], (starts[row] + int64_t(t) + 1) % 251);
    }
  }
}

TEST(Batches, MasksFollowTheTargets) {
  std::vector<uint8_t> mask(20, 0);
  mask[5] = 1;
  const std::array<int64_t, 2> starts{2, 4};
  const Tensor shifted = target_mask(mask, 3, starts);
  EXPECT_EQ(shifted.to_vector<uint8_t>(), (std::vector<uint8_t>{0, 0, 1, 1, 0, 0}));
}

TEST(Batches, WindowsMustLieInTheText) {
  const auto text = counting_text(20);
  const std::array<int64_t, 1> last{12}, beyond{13}, negative{-1};
  EXPECT_EQ(window_batch(text, 7, last).targets.to_vector<int32_t>().back(), 19);
  SLUICE_EXPECT_THROW(window_batch(text, 7, beyond), ArgumentError, "in 20 bytes, got 13");
  SLUICE_EXPECT_THROW(window_batch(text, 7, negative), ArgumentError, "got -1");
  SLUICE_EXPECT_THROW(
      sampled_start(7, 7, 1, 0), ArgumentError, "must be longer than 7 tokens, got 7 bytes");
}

TEST(Batches, SamplesDependOnTheirNumberOnly) {
  const auto text = counting_text(5000);
  const SampleOptions whole{.batch = 6, .tokens = 32, .seed = 5};
  SampleOptions half = whole;
  half.batch = 3;
  const Batch together = sampled_batch(text, whole, 12);
  const Batch second = sampled_batch(text, half, 15);
  EXPECT_TRUE(std::equal(second.starts.begin(), second.starts.end(), together.starts.begin() + 3));
  SampleOptions other = whole;
  other.seed = 6;
  EXPECT_NE(sampled_batch(text, other, 12).starts, together.starts);
}

TEST(Batches, SamplesAreUniform) {
  // 20,000 draws over 10 windows: chi-square with 9 degrees of freedom exceeds 33.7 with
  // probability 1e-4; the seed is fixed.
  std::array<int, 10> count{};
  for (int64_t sample = 0; sample < 20000; ++sample) {
    const int64_t start = sampled_start(26, 16, 3, sample);
    ASSERT_GE(start, 0);
    ASSERT_LT(start, 10);
    ++count[size_t(start)];
  }
  double chi_square = 0;
  for (const int n : count) chi_square += (n - 2000.0) * (n - 2000.0) / 2000.0;
  EXPECT_LT(chi_square, 33.7);
}

TEST(Batches, ConsecutiveWindowsNeedATarget) {
  EXPECT_EQ(consecutive_windows(0, 8), 0);
  EXPECT_EQ(consecutive_windows(8, 8), 0);
  EXPECT_EQ(consecutive_windows(9, 8), 1);
  EXPECT_EQ(consecutive_windows(16, 8), 1);
  EXPECT_EQ(consecutive_windows(17, 8), 2);
}

TEST(TextData, MaskCoversTheValueOnly) {
  const std::string text = "Package: a\nFilename: pool/a\n\nFilename: \nX-Filename: b\nFilename: c";
  const std::vector<std::string> prefixes = {"Filename: ", "Nothing: "};
  const auto mask = field_value_mask(bytes_of(text), prefixes);
  ASSERT_EQ(mask.size(), text.size());
  std::string covered;
  for (size_t i = 0; i < text.size(); ++i) covered += mask[i] != 0 ? text[i] : '.';
  EXPECT_EQ(covered, std::string(21, '.') + "pool/a" + std::string(37, '.') + "c");
}

TEST(TextData, HeldOutIsTheTail) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "text";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("0123456789", file);
  std::fclose(file);
  const TextData text = read_text(path, 0.2);
  EXPECT_EQ(text.training().size(), 8u);
  EXPECT_EQ(text.held_out()[0], '8');
  EXPECT_NO_THROW(require_windows(text, 1));
  SLUICE_EXPECT_THROW(require_windows(text, 2), ArgumentError, "give 8 to train on and 2 held out");
  SLUICE_EXPECT_THROW(read_text(path, 1), ArgumentError, "held_out must be in [0, 1), got 1");
}

TEST(TextData, MissingFileAndDirectoryNameThePath) {
  SLUICE_EXPECT_THROW(
      read_text("/no/such/text", 0.1),
      IoError,
      "/no/such/text: cannot open: No such file or directory");
  SLUICE_EXPECT_THROW(read_text("/", 0.1), IoError, "/: must be a regular file");
}

}  // namespace
}  // namespace sluice
