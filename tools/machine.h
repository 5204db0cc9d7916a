// The machine that numbers were measured on, for reports.
#pragma once

#include <string>

namespace sluice::tools {

/// "AMD EPYC ..., 2 threads, avx512 kernels, g++ 12.2.0"
std::string describe_machine();

}  // namespace sluice::tools
