#pragma once
/// @file
/// Rules that the sources keep and no compiler checks. Each function looks at the project in the folder `root` and
/// gives what is wrong, a line for every breach, in the order of the files' names; nothing when all is well.

#include <filesystem>
#include <string>
#include <vector>

namespace stagecoach {

/// A floor includes itself and what stands below it; includes of the project are written from its root.
std::vector<std::string> wrong_includes(const std::filesystem::path& root);

/// Every .cpp and .cu of the floors and of the tests is named in a CMakeLists.txt, so none is forgotten.
std::vector<std::string> unlisted_sources(const std::filesystem::path& root);

/// Tests of what starts threads of its own (asynchronous devices, remote calls, wrappers) are not listed after
/// ONE_THREAD in a CMakeLists.txt, so that the thread sanitizer sees them.
std::vector<std::string> threads_without_sanitizer(const std::filesystem::path& root);

/// The floors draw their random numbers from core/random.h: those of the standard library differ between machines.
std::vector<std::string> foreign_random_numbers(const std::filesystem::path& root);

/// JSON is read by core/base/parse_json.h: the library's own functions accept damaged text.
std::vector<std::string> careless_json(const std::filesystem::path& root);

/// The texts of libraries name no flag: their users have none. A flag after the program that has it, such as
/// "srun --mpi=pmix" or "scripts/setup.sh --for-mpi", is no flag of a chapter.
std::vector<std::string> flags_in_libraries(const std::filesystem::path& root);

/// For each parameter that a text of a library names in backticks, chapters/common/flag_table.cpp has a flag of that
/// name, or chapters/common/name_flags.cpp another one.
std::vector<std::string> parameters_without_flag(const std::filesystem::path& root);

/// What only one operating system has is called by files of that system alone, whose names end in _linux or _posix.
std::vector<std::string> calls_of_one_system(const std::filesystem::path& root);

/// A source that calls an algorithm includes <algorithm>, or the header of its own name does: that another header of
/// one standard library happens to bring it in says nothing about the next.
std::vector<std::string> missing_algorithm_includes(const std::filesystem::path& root);

/// Links and pictures in Markdown that are not on the web lead to something that is there.
std::vector<std::string> dead_links(const std::filesystem::path& root);

}  // namespace stagecoach
