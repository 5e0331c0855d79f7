#pragma once
/// @file
/// How long messages take on a modelled network, for the virtual clock and for `simulate`.

#include <string>
#include <vector>

namespace stagecoach {

/// A connection between two ranks. A message of n bytes takes latency + n / bytes_per_second from its start. It starts
/// when it has been sent, its receive has been posted and the link is free in that direction (details:
/// link_direction.h).
struct Link {
  double latency = 0;           ///< seconds
  double bytes_per_second = 0;  ///< one way; 0 means no limit
  bool operator==(const Link&) const = default;

  /// Returns the seconds for which a message occupies the link.
  double transfer_seconds(double bytes) const { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }
  /// Returns the seconds that a message takes on a free link.
  double seconds(double bytes) const { return latency + transfer_seconds(bytes); }
};

/// Returns the names of the predefined links, fastest first:
/// | name        | latency | rate, one way | what                                                     |
/// |-------------|---------|---------------|----------------------------------------------------------|
/// | none        | 0       | no limit      | messages take no time                                    |
/// | nvlink4     | 2 us    | 450 GB/s      | GPUs of one machine (NVLink 4: 18 links of 25 GB/s)      |
/// | pcie4       | 5 us    | 32 GB/s       | GPUs of one machine without it (PCIe 4.0, 16 lanes)      |
/// | ethernet100 | 20 us   | 12.5 GB/s     | machines (100 Gbit/s)                                    |
/// The rates are those of the standards; the latencies are round figures of the right magnitude.
const std::vector<std::string>& link_names();

/// Parses a name, or "LATENCY,BANDWIDTH" in seconds and bytes per second: "2e-5,12.5e9"; with units also
/// "20us,12.5GB/s" (s, ms, us, ns; B/s, KB/s, MB/s, GB/s, Mbit/s, Gbit/s). Throws a UsageError that lists the valid
/// forms.
Link link_from_text(const std::string& text);

/// These return the seconds of a collective of `ranks` ranks, each with `bytes` bytes, from the time when the last rank
/// calls it.
/// Source: Thakur et al., "Optimization of collective communication operations in MPICH", 2005, section 4.
double ring_all_reduce_seconds(const Link& link, int ranks, double bytes);      ///< 2 (p - 1) messages of bytes / p
double ring_all_gather_seconds(const Link& link, int ranks, double bytes);      ///< p - 1 messages of bytes
double ring_reduce_scatter_seconds(const Link& link, int ranks, double bytes);  ///< p - 1 messages of bytes / p
double tree_broadcast_seconds(const Link& link, int ranks, double bytes);       ///< log2 p messages, one after another
double root_reduce_seconds(const Link& link, int ranks, double bytes);          ///< p - 1 messages of bytes to the root
// An all-to-all's messages take different links: Network::all_to_all_seconds.

}  // namespace stagecoach
