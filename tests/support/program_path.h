#pragma once
/// @file
/// Where the programs lie that tests run.

#include <string>

namespace stagecoach::test {

/// The path of a program that lies beside this test's own: so both can be carried to another machine.
std::string program_path(const std::string& name);

}  // namespace stagecoach::test
