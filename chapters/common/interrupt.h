#pragma once
/// @file
/// Signals. The first SIGINT, SIGTERM, SIGHUP or SIGUSR1 tells the program to save and stop; another one, more than a
/// second later, ends it at once. Launchers of many processes forward these signals, and send one before a job's time
/// limit.

namespace stagecoach {

/// Installs handlers: from now on these signals are noted, and no longer end the program.
void catch_interrupts();
/// Returns whether one of them has arrived.
bool interrupted();

}  // namespace stagecoach
