// Signals inside and after the scope of an interrupt.
#include "tools/interrupt.h"

#include <csignal>

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

void own_handler(int) {}

/// Puts the actions of the two signals back at the end of a test.
class Interrupt : public ::testing::Test {
 protected:
  Interrupt() {
    ::sigaction(SIGINT, nullptr, &before_[0]);
    ::sigaction(SIGTERM, nullptr, &before_[1]);
  }
  ~Interrupt() override {
    ::sigaction(SIGINT, &before_[0], nullptr);
    ::sigaction(SIGTERM, &before_[1], nullptr);
  }

  struct sigaction before_[2];
};

TEST_F(Interrupt, SetsAFlagAndRestoresTheActions) {
  std::signal(SIGINT, own_handler);
  std::signal(SIGTERM, SIG_DFL);
  {
    const InterruptScope scope;
    EXPECT_FALSE(InterruptScope::requested());
    std::raise(SIGTERM);
    EXPECT_TRUE(InterruptScope::requested());
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), own_handler);
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL);
}

TEST_F(Interrupt, AnIgnoredSignalStaysIgnored) {
  std::signal(SIGINT, SIG_IGN);
  {
    const InterruptScope scope;
    std::raise(SIGINT);
    EXPECT_FALSE(InterruptScope::requested());
    std::raise(SIGTERM);
    EXPECT_TRUE(InterruptScope::requested());
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace sluice::tools
