// Entry point of the program `sluice`.
#include "tools/command_line.h"

int main(int argc, char** argv) { return sluice::tools::run_command_line(argc, argv); }
