#pragma once
/// @file
/// Stopping on request: the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 (which launchers of many processes pass on, and
/// send before a job's time is over) asks the program to save and stop; one that comes more than a second later ends it
/// at once.

namespace stagecoach {

/// From now on requests are noted instead of ending the program.
void catch_interrupts();
/// True once one came.
bool interrupted();

}  // namespace stagecoach
