#include "core/base/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::read_bytes;
using test::TemporaryFolder;

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

TEST(AtomicFile, AppearsOnlyWhenItIsCommitted) {
  const TemporaryFolder folder;
  write_text(folder.file("f"), "old");
  {
    AtomicFile file(folder.file("f"));
    file.write("new");
    EXPECT_EQ(read_bytes(folder.file("f")), "old");
  }
  EXPECT_EQ(read_bytes(folder.file("f")), "old");
  EXPECT_EQ(folder.file_count(), 1U) << "a temporary file was left behind";
}

TEST(AtomicFile, WritesAllPartsAndLeavesNoOtherFile) {
  const TemporaryFolder folder;
  AtomicFile file(folder.file("f"));
  for (const char* part : {"one ", "", "two"}) {
    file.write(part);
  }
  file.commit();
  EXPECT_EQ(read_bytes(folder.file("f")), "one two");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, ReplacesAnOlderFile) {
  const TemporaryFolder folder;
  write_text(folder.file("f"), "a longer old text");
  write_text(folder.file("f"), "new");
  EXPECT_EQ(read_bytes(folder.file("f")), "new");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, TakesNamesAsLongAsTheSystemDoes) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  write_text(folder.file(name), "text");
  EXPECT_EQ(read_bytes(folder.file(name)), "text");
}

TEST(AtomicFile, NamesPathAndReason) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_with<DataError>({folder.file("no/such/f").c_str(), "No such file or directory"},
                                    [&] { write_text(folder.file("no/such/f"), "text"); }));
  write_text(folder.file("f"), "text");
  EXPECT_TRUE(fails_with<DataError>({"f/below", "Not a directory"}, [&] { write_text(folder.file("f/below"), ""); }));
}

TEST(AtomicFile, AFolderWithoutPermissionIsRefused) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write everywhere";
  }
  const TemporaryFolder folder;
  write_text(folder.file("f"), "old");
  ::chmod(folder.path().c_str(), 0555);
  EXPECT_TRUE(fails_with<DataError>({"Permission denied"}, [&] { write_text(folder.file("f"), "new"); }));
  ::chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(read_bytes(folder.file("f")), "old");
}

/// Runs `body` in a child that may write no more than `limit` bytes per file, as on a full disk.
/// True when the child saw a DataError that names `reason`.
template <class Body>
bool fails_with_a_full_disk(rlim_t limit, const std::string& reason, Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);  // so that the write itself fails, with EFBIG
    const rlimit limits{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &limits);
    try {
      body();
    } catch (const DataError& error) {
      ::_exit(std::string(error.what()).find(reason) == std::string::npos ? 2 : 0);
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(AtomicFile, AFullDiskLeavesTheOlderFileWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.file("weights");
  write_text(path, "old");
  const std::string larger(40'000, 'x');
  for (const rlim_t limit : {0UL, 4UL, 100UL, 20'000UL}) {
    EXPECT_TRUE(fails_with_a_full_disk(limit, "cannot write '" + path + "': writing: File too large", [&] {
      write_text(path, larger);
    })) << limit;
    EXPECT_EQ(read_bytes(path), "old") << limit;
    EXPECT_EQ(folder.file_count(), 1U) << limit;
  }
}

}  // namespace
}  // namespace stagecoach
