#pragma once
/// @file
/// Stopping on request: the first SIGINT or SIGTERM asks the program to save and stop, the second ends it at once.

namespace stagecoach {

/// From now on requests are noted instead of ending the program.
void catch_interrupts();
/// True once one came.
bool interrupted();

}  // namespace stagecoach
