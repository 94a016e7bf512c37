/* The floor of benchmarks/messages.py: create, write, (fsync,) rename into a watched folder, (fsync of the folder);
 * another process is woken by inotify, reads the file and unlinks it. Nothing is composed and nothing is parsed.
 *
 *   floor FOLDER DURABLE NUMBER PACED
 *
 * prints one latency in ms for each message if PACED (the next one is sent when the last one was read), else one rate.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char body[780], folder[3000], events[65536];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void receive(int number, int ready, int back) {
    char path[4000], content[4096], watched[3010];
    int fd = inotify_init1(IN_CLOEXEC), seen = 0;
    snprintf(watched, sizeof watched, "%s/new", folder);
    if (fd < 0 || inotify_add_watch(fd, watched, IN_MOVED_TO) < 0) exit(1);
    if (write(ready, "r", 1) != 1) exit(1);
    while (seen < number) {
        ssize_t got = read(fd, events, sizeof events);
        for (char *at = events; at < events + got;) {
            struct inotify_event *event = (struct inotify_event *)at;
            at += sizeof *event + event->len;
            snprintf(path, sizeof path, "%s/%s", watched, event->name);
            int file = open(path, O_RDONLY);
            if (file < 0 || read(file, content, sizeof content) < 0) exit(1);
            double when = now();
            close(file);
            unlink(path);
            seen++;
            if (write(back, &when, sizeof when) != sizeof when) exit(1);
        }
    }
    exit(0);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int durable = atoi(argv[2]), number = atoi(argv[3]), paced = atoi(argv[4]);
    int ready[2], back[2];
    char tmp[4000], target[4000], name[4000];
    char byte;
    snprintf(folder, sizeof folder, "%s", argv[1]);
    memset(body, 'x', sizeof body);
    snprintf(name, sizeof name, "%s/tmp", folder);
    mkdir(name, 0755);
    snprintf(name, sizeof name, "%s/new", folder);
    mkdir(name, 0755);
    if (pipe(ready) || pipe(back)) return 1;
    pid_t child = fork();
    if (child == 0) receive(number, ready[1], back[1]);
    if (read(ready[0], &byte, 1) != 1) return 1;
    double began = now(), when = 0;
    for (int at = 0; at < number; at++) {
        double sent = now();
        snprintf(tmp, sizeof tmp, "%s/tmp/%d", folder, at);
        snprintf(target, sizeof target, "%s/new/%d", folder, at);
        int file = open(tmp, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (file < 0 || write(file, body, sizeof body) != sizeof body) return 1;
        if (durable) fsync(file);
        close(file);
        if (rename(tmp, target)) return 1;
        if (durable) {
            int dir = open(name, O_RDONLY | O_DIRECTORY);
            fsync(dir);
            close(dir);
        }
        if (paced) {
            if (read(back[0], &when, sizeof when) != sizeof when) return 1;
            printf("%.6f\n", when - sent);
            usleep(500);
        }
    }
    if (!paced) {
        for (int at = 0; at < number; at++)
            if (read(back[0], &when, sizeof when) != sizeof when) return 1;
        printf("%.1f\n", number / ((when - began) / 1e3));
    }
    waitpid(child, NULL, 0);
    return 0;
}
