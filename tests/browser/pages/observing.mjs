// What every page does: takes its steps one after another and posts what it saw to where it came from.
export const server = new URLSearchParams(location.search).get('server');

export async function observe(steps) {
    const observed = {};
    for (const [name, step] of Object.entries(steps)) {
        try {
            observed[name] = await step();
        } catch (error) {
            observed[name] = `${error.name}: ${error.message}`;
        }
    }
    await fetch('/observed', { method: 'POST', body: JSON.stringify(observed) });
}
