#pragma once
/// @file
/// The address at which other machines reach this one.

#include <string>

namespace stagecoach {

/// Returns an IPv4 address in dotted form: the one that this machine's name resolves to, or else the one of its first
/// network interface; "127.0.0.1" on a machine without a network. With several networks it may not be the one that you
/// want.
std::string own_address();

}  // namespace stagecoach
