#pragma once
/// @file
/// The address by which other machines reach this one.

#include <string>

namespace stagecoach {

/// The number of an IPv4 address: the one that this machine's name stands for, or else that of its first network.
/// "127.0.0.1" on a machine without a network. With several networks it may not be the one that is meant.
std::string own_address();

}  // namespace stagecoach
