// The built-in texts, from small inputs in the formats of apt and WordNet.
#include "tools/corpus.h"

#include <algorithm>

#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice::tools {
namespace {

constexpr const char* kDump =
    "Package: a\n"
    "Version: 1\n"
    "Installed-Size: 77\n"
    "Tag: role::program,\n"
    " use::gameplaying\n"
    "Build-Ids: 0123\n"
    " 4567\n"
    "Filename: pool/a_1.deb\n"
    "Size: 99\n"
    "SHA256: abc\n"
    "\n"
    "Package: local\n"
    "Version: 3\n"
    "\n"
    "Package: b\n"
    "Filename: pool/b_2.deb\n"
    "Description-md5: abc\n";  // the last line ends the record, with or without an empty one

TEST(Corpus, PackageRecordsDropHashesSizesAndLocalRecords) {
  const std::string a =
      "Package: a\nVersion: 1\nTag: role::program,\n use::gameplaying\nFilename: pool/a_1.deb\n\n";
  const std::string b = "Package: b\nFilename: pool/b_2.deb\n\n";
  const std::string text = package_records(kDump, {});
  EXPECT_TRUE(text == a + b || text == b + a) << text;
}

TEST(Corpus, OrderDependsOnSeedAndSetOnly) {
  std::vector<std::string> records;
  for (int i = 0; i < 100; ++i) records.push_back(std::to_string(i) + "\n");
  const std::string text = join_shuffled(records, {});
  std::reverse(records.begin(), records.end());
  records.push_back("7\n");  // a repeated record counts once
  EXPECT_EQ(join_shuffled(records, {}), text);
  EXPECT_NE(join_shuffled(records, {.seed = 2}), text);
  EXPECT_EQ(text.size(), 290u);
}

TEST(Corpus, StopsAtWholeRecords) {
  const std::vector<std::string> records = {"aaaa\n", "bbbb\n", "cccc\n"};
  EXPECT_EQ(join_shuffled(records, {.bytes = 14}).size(), 10u);
  EXPECT_EQ(join_shuffled(records, {.bytes = 15}).size(), 15u);
  EXPECT_EQ(join_shuffled(records, {.bytes = 4}), "");
}

TEST(Corpus, WordnetLinesBecomeWordsAndGloss) {
  const std::vector<std::string> files = {
      "  1 This software and database is being provided | to you\n"
      "00003662 29 v 01 force_out 0 001 @ 00105333 v 0000 | emit; \"force out the air\"  \n"
      "00003826 29 v 0b a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j 0 k 1 000 | letters\n"};
  const std::string text = wordnet_glosses(files, {});
  EXPECT_NE(text.find("force out: emit; \"force out the air\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("a, b, c, d, e, f, g, h, i, j, k: letters\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("software"), std::string::npos) << text;
}

TEST(Corpus, Throws) {
  SLUICE_EXPECT_THROW(package_records("", {}), ArgumentError, "run apt-get update first");
  SLUICE_EXPECT_THROW(wordnet_glosses({}, {}), ArgumentError, "hold no synset");
}

}  // namespace
}  // namespace sluice::tools
