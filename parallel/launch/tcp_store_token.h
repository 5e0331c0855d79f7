#pragma once
/// @file
/// The secret by which the ranks of a run know each other: whoever else reaches the store's port is sent away. It goes
/// over the network as it is, so it does not stop someone who can read what others send.

#include <string>

#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// STAGECOACH_TOKEN, which a launcher's environment carries to all ranks. Where it is not set, what is in
/// ~/.stagecoach_token, which only this user can read; the first process that asks writes it. Throws UsageError for a
/// token of fewer than 16 or more than 256 bytes, and for a file that others can read or that cannot be written.
std::string store_token();
/// The same from an environment.
std::string store_token_in(Environment get);

/// 128 random bits in hexadecimal digits.
std::string random_token();

}  // namespace stagecoach
