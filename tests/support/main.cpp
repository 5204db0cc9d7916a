// Entry point of every test program: fresh memory is full of NaN, so an output that nobody wrote
// cannot look right by accident.
#include <gtest/gtest.h>

#include "engine/memory.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  sluice::set_memory_poison(true);
  return RUN_ALL_TESTS();
}
