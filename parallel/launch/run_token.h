#pragma once
/// @file
/// The secret that the ranks of a run share: they admit no other client. The token is sent unencrypted, so it
/// does not protect against anyone who can read the network traffic.

#include <string>

#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// Returns the value of STAGECOACH_TOKEN, which a launcher's environment passes to all ranks. If it is not set, returns
/// the contents of ~/.stagecoach_token, which only this user can read; the first process that needs the file writes it.
/// Throws UsageError for a token of fewer than 16 or more than 256 bytes, and for a file that other users can read or
/// that cannot be written.
std::string run_token(Environment get = process_environment);

/// Returns 128 random bits as hexadecimal digits.
std::string random_token();

}  // namespace stagecoach
