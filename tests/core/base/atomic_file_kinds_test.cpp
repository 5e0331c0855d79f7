// What is under the name of an output: only a regular file is replaced.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "core/base/atomic_file.h"
#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
using test::fails_with;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

class AtomicFileKinds : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void save(const std::string& name, const std::string& text = "new") const {
    AtomicFile file(name);
    file.write(text);
    file.commit();
  }
  std::size_t file_count() const { return folder_.file_count(); }
  /// Checks that writing to `name` fails with these words, and that what is there stays what it is.
  void expect_refused(const std::string& name, std::initializer_list<const char*> words) {
    const fs::file_type before = fs::symlink_status(name).type();
    const std::size_t files = file_count();
    EXPECT_TRUE(fails_with<DataError>(words, [&] { save(name); }));
    EXPECT_EQ(fs::symlink_status(name).type(), before);
    EXPECT_EQ(file_count(), files) << "a temporary file was left behind";
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(AtomicFileKinds, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(file("elsewhere"));
  write_bytes(file("elsewhere/target"), "old");
  fs::create_symlink("elsewhere/target", file("link"));
  fs::create_symlink(file("link"), file("link_to_link"));
  save(file("link_to_link"));
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_TRUE(fs::is_symlink(file("link_to_link")));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file("elsewhere/target"))));
  EXPECT_EQ(read_bytes(file("elsewhere/target")), "new");
  EXPECT_EQ(file_count(), 3U);
}

TEST_F(AtomicFileKinds, WhereALinkLeadsToNothingItsTargetIsMade) {
  fs::create_symlink("target", file("link"));
  save(file("link"));
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_EQ(read_bytes(file("target")), "new");

  fs::create_symlink("no/such/folder", file("astray"));
  expect_refused(file("astray"), {"astray", "No such file or directory"});
  fs::create_symlink("circle", file("circle"));
  expect_refused(file("circle"), {"circle", "symbolic links"});
}

TEST_F(AtomicFileKinds, AFolderIsRefused) {
  fs::create_directory(file("folder"));
  expect_refused(file("folder"), {"cannot write", "folder'", "expected a file, got a folder"});
  fs::create_symlink("folder", file("link"));
  expect_refused(file("link"), {"expected a file, got a folder"});
}

TEST_F(AtomicFileKinds, ASocketIsRefused) {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(file("socket").size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, file("socket").c_str());
  ASSERT_EQ(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  expect_refused(file("socket"), {"expected a file, got a socket"});
  ::close(descriptor);
}

TEST_F(AtomicFileKinds, AFifoWithoutAReaderIsRefused) {
  ASSERT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
  expect_refused(file("fifo"), {"no process is reading this FIFO", "start its reader first"});
}

TEST_F(AtomicFileKinds, AReaderOfAFifoGetsAll) {
  ASSERT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
  const int reader = ::open(file("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  save(file("fifo"), "for the reader");
  std::array<char, 64> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 14);
  EXPECT_STREQ(got.data(), "for the reader");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(file("fifo")));
}

TEST_F(AtomicFileKinds, AReaderThatGoesIsAnErrorAndNoSignal) {
  ASSERT_EQ(::mkfifo(file("fifo").c_str(), 0600), 0);
  const int reader = ::open(file("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  AtomicFile fifo(file("fifo"));
  ::close(reader);
  EXPECT_TRUE(fails_with<DataError>({"fifo", "Broken pipe"}, [&] { fifo.write("for nobody"); }));
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

// Nodes of the test's own: code that went wrong would, as root, take /dev/null from the whole machine.
TEST_F(AtomicFileKinds, ANodeStaysANode) {
  const auto make = [&](const char* name, mode_t kind, dev_t device) {
    return ::mknod(file(name).c_str(), kind | 0600, device) == 0;
  };
  if (!make("null", S_IFCHR, makedev(1, 3)) || !make("full", S_IFCHR, makedev(1, 7)) ||
      !make("disk", S_IFBLK, makedev(7, 200))) {
    GTEST_SKIP() << "no device nodes can be made here: " << std::strerror(errno);
  }
  const int descriptor = ::open(file("null").c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    GTEST_SKIP() << "device nodes cannot be opened here: " << std::strerror(errno);
  }
  ::close(descriptor);
  save(file("null"));
  EXPECT_TRUE(fs::is_character_file(file("null")));
  EXPECT_EQ(file_count(), 3U);
  expect_refused(file("full"), {"full", "No space left on device"});
  expect_refused(file("disk"), {"expected a file, got a block device"});
}

TEST_F(AtomicFileKinds, ALinkToADeviceStays) {
  fs::create_symlink("/dev/null", file("null"));
  save(file("null"));
  EXPECT_TRUE(fs::is_symlink(file("null")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", file("full"));
  expect_refused(file("full"), {"full", "No space left on device"});
}

/// Sends standard output to a file while it lives.
class StandardOutputTo {
 public:
  explicit StandardOutputTo(const std::string& path) : before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(descriptor, STDOUT_FILENO);
    ::close(descriptor);
  }
  ~StandardOutputTo() {
    std::fflush(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }
  StandardOutputTo(const StandardOutputTo&) = delete;
  StandardOutputTo& operator=(const StandardOutputTo&) = delete;

 private:
  int before_;
};

// Whether it goes to a pipe or to a file, what is printed before and after stays before and after.
TEST_F(AtomicFileKinds, StandardOutputIsWrittenInItsOrder) {
  fs::create_symlink("/proc/self/fd/1", file("stdout"));  // as /dev/stdout is
  for (const std::string& name : {file("stdout"), file("printed")}) {
    {
      const StandardOutputTo printed(file("printed"));
      std::fputs("before ", stdout);
      save(name, "the file ");
      std::fputs("after", stdout);
    }
    EXPECT_EQ(read_bytes(file("printed")), "before the file after") << name;
    fs::remove(file("printed"));
  }
  EXPECT_TRUE(fs::is_symlink(file("stdout")));
}

TEST_F(AtomicFileKinds, WhatKilledProgramsLeftIsRemovedAndNothingElse) {
  const std::string living = file("living");
  AtomicFile being_written(living);
  for (const char* name : {".stagecoach-12-3", ".stagecoach-12-4", ".stagecoach-notes", ".stagecoach-12-3.bak",
                           "x.stagecoach-12-3", ".stagecoach--1-3"}) {
    write_bytes(file(name), "text");
  }
  fs::create_directory(file(".stagecoach-1-1"));
  remove_abandoned_files(fs::path(living).parent_path());
  EXPECT_FALSE(fs::exists(file(".stagecoach-12-3")));
  EXPECT_FALSE(fs::exists(file(".stagecoach-12-4")));
  EXPECT_EQ(file_count(), 6U) << "the user's four files, a folder, and the one that is being written";
  being_written.write("whole");
  being_written.commit();
  EXPECT_EQ(read_bytes(living), "whole");
  EXPECT_TRUE(fails_with<DataError>({"no-such-folder"}, [&] { remove_abandoned_files(file("no-such-folder")); }));
}

}  // namespace
}  // namespace stagecoach
